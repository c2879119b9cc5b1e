-- name: CommandInsert :one
INSERT INTO session_commands (id, session_id, kind, force, prompt_id, bundle_id, run_id, status, reason, created_at, ended_at, request_id)
VALUES (@id, @session_id, @kind, @force, @prompt_id, @bundle_id, @run_id, @status, @reason, @created_at, @ended_at, @request_id)
RETURNING *;

-- name: CommandsPending :many
SELECT * FROM session_commands WHERE session_id = @session_id AND status = 'pending' ORDER BY id;

-- name: CommandsPendingOf :many
-- CommandsPendingOf is CommandsPending for several sessions.
SELECT * FROM session_commands WHERE session_id = ANY(@session_ids::text[]) AND status = 'pending' ORDER BY id;

-- name: CommandRequest :one
-- CommandRequest returns the id of the request that submitted a command.
SELECT request_id FROM session_commands WHERE id = @id;

-- name: CommandForce :one
-- CommandForce changes a pending command to a forced one, which the workflow must read again. A
-- reason replaces an earlier one.
UPDATE session_commands SET force = true, heard_by = '', reason = coalesce(nullif(@reason::text, ''), reason)
WHERE id = @id AND status = 'pending'
RETURNING *;

-- name: CommandEnd :one
UPDATE session_commands SET status = @status, reason = @reason, ended_at = @at::timestamptz
WHERE id = @id AND status = 'pending'
RETURNING *;

-- name: CommandsEndAborts :many
-- CommandsEndAborts ends the aborts of a run.
UPDATE session_commands SET status = @status, reason = CASE WHEN reason = '' THEN @reason::text ELSE reason END, ended_at = @at::timestamptz
WHERE session_id = @session_id AND kind = 'abort' AND run_id = @run_id AND status = 'pending'
RETURNING *;

-- name: CommandsRead :exec
UPDATE session_commands SET heard_by = @heard_by
WHERE session_id = @session_id AND status = 'pending' AND heard_by <> @heard_by;

-- name: CommandsForget :exec
-- CommandsForget deletes the ended commands of a session except the newest.
DELETE FROM session_commands d
WHERE d.session_id = @session_id AND d.status <> 'pending' AND d.id IN (
    SELECT c.id FROM session_commands c
    WHERE c.session_id = @session_id AND c.status <> 'pending'
    ORDER BY c.ended_at DESC, c.id DESC OFFSET @kept LIMIT 100
);

-- name: CommandsOverdue :many
-- CommandsOverdue finds sessions with a command that has been pending for long: first those with a
-- command that no workflow has read, otherwise in no particular order, so that no session keeps
-- others from being checked. heard_by is the workflow run that has read the commands; empty if one
-- was not read. It includes sessions with an open workflow that has not reacted to a signal for
-- much longer, because the signal of a changed setting may be lost.
SELECT u.session_id::text AS session_id, u.stop::boolean AS stop, u.heard_by::text AS heard_by
FROM (
    SELECT c.session_id,
        bool_or(c.kind = 'stop') AS stop,
        CASE WHEN bool_or(c.heard_by = '') THEN '' ELSE max(c.heard_by) END AS heard_by
    FROM session_commands c
    WHERE c.status = 'pending' AND c.created_at < statement_timestamp() - make_interval(secs => @age_seconds::double precision)
    GROUP BY c.session_id
    UNION ALL
    SELECT s.id, false, ''
    FROM sessions s
    WHERE s.signalled_at < statement_timestamp() - make_interval(secs => @signalled_seconds::double precision)
      AND s.loaded AND s.status <> 'terminated'
      AND NOT EXISTS (SELECT FROM session_commands c WHERE c.session_id = s.id AND c.status = 'pending')
) u
ORDER BY (u.heard_by = '') DESC, random()
LIMIT @max_items;

-- name: SessionSignalled :exec
UPDATE sessions SET signalled_at = @at::timestamptz WHERE id = @id;

-- name: SessionWorkRead :exec
-- SessionWorkRead records that an open workflow has read the pending work.
UPDATE sessions SET signalled_at = NULL, loaded = true WHERE id = @id AND (signalled_at IS NOT NULL OR NOT loaded);

-- name: SessionClaimed :exec
-- SessionClaimed is SessionWorkRead and records the claim as activity. A claim by the workflow ends an
-- attendance. Within a second of other activity, such as the submit of the claimed prompt, the
-- claim is not recorded as activity: that would update the index of activity once more in every
-- turn.
UPDATE sessions SET
    last_seq = @last_seq, signalled_at = NULL, loaded = true, attendant = @attendant,
    last_activity_at = CASE WHEN last_activity_at + interval '1 second' < @at::timestamptz THEN @at::timestamptz ELSE last_activity_at END
WHERE id = @id;
