-- name: BreakerKey :one
-- BreakerKey returns what identifies the start of a session's sandbox: its agent, and a hash of the
-- session.
SELECT agent, md5(id)::text AS start, clock_timestamp()::timestamptz AS at FROM sessions WHERE id = @session_id;

-- name: BreakerIsOpen :one
-- BreakerIsOpen reports whether an open breaker applies to the start of a session's sandbox.
SELECT EXISTS (
    SELECT 1 FROM breakers b JOIN sessions s ON s.agent = b.agent
    WHERE s.id = @session_id AND b.provider = @provider AND b.opened_at IS NOT NULL
)::boolean AS open;

-- name: BreakerLock :many
SELECT * FROM breakers WHERE provider = @provider AND agent = @agent FOR UPDATE;

-- name: BreakerAdd :execrows
-- BreakerAdd stores the first failure.
INSERT INTO breakers (provider, agent, failures, failed_at, failed_by, reason)
VALUES (@provider, @agent, 1, @failed_at, @failed_by, @reason) ON CONFLICT DO NOTHING;

-- name: BreakerStore :exec
-- BreakerStore stores a locked breaker.
UPDATE breakers SET failures = @failures, trials = @trials, failed_at = @failed_at, failed_by = @failed_by, reason = @reason,
    opened_at = sqlc.narg(opened_at), retry_at = sqlc.narg(retry_at), trial_by = @trial_by, trial_until = sqlc.narg(trial_until)
WHERE provider = @provider AND agent = @agent;

-- name: BreakerClose :many
-- BreakerClose deletes the breaker that applies to starts of a session.
DELETE FROM breakers b USING sessions s
WHERE s.id = @session_id AND b.provider = @provider AND b.agent = s.agent
RETURNING b.opened_at;

-- name: BreakersOpen :many
-- BreakersOpen lists the open breakers, at most one per provider and agent.
SELECT * FROM breakers WHERE opened_at IS NOT NULL ORDER BY provider, agent;
