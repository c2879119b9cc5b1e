-- name: WhySession :one
-- WhySession returns facts that explain a session but are not part of its resource.
SELECT s.no, s.workflow_run, s.attendant, clock_timestamp()::timestamptz AS now FROM sessions s WHERE s.id = @id;

-- name: WhyTransitions :many
-- WhyTransitions returns the newest transitions up to a given one, or up to the last if it is 0.
SELECT * FROM session_transitions
WHERE session_id = @session_id AND no <= CASE WHEN @no::bigint = 0 THEN 9223372036854775807 ELSE @no::bigint END
ORDER BY no DESC LIMIT @max_items;

-- name: WhyReceiptNo :one
-- WhyReceiptNo returns the newest of the last transitions that has a receipt; 0 if there is none.
SELECT coalesce(max(t.no), 0)::bigint AS no FROM (
    SELECT n.no, n.receipt FROM session_transitions n WHERE n.session_id = @session_id ORDER BY n.no DESC LIMIT 1000
) t WHERE t.receipt IS NOT NULL;

-- name: WhyCommands :many
-- WhyCommands returns the newest commands of a session. The number of ended ones is bounded.
SELECT * FROM session_commands WHERE session_id = @session_id ORDER BY created_at DESC, id DESC LIMIT @max_items;

-- name: WhySandboxes :many
SELECT * FROM sandboxes WHERE session_id = @session_id AND generation <= @generation::bigint ORDER BY generation DESC LIMIT @max_items;

-- name: WhyBundles :many
-- WhyBundles returns the newest bundles of a session and the state of their snapshots.
SELECT b.id, b.generation, b.snapshot_id, b.checkpoint, b.verified, b.created_at,
    (n.deleted_at IS NOT NULL OR n.condemned_at IS NOT NULL)::boolean AS snapshot_gone
FROM bundles b LEFT JOIN snapshots n ON n.id = b.snapshot_id
WHERE b.session_id = @session_id AND b.created_at <= @before::timestamptz
ORDER BY b.no DESC LIMIT @max_items;

-- name: WhyProblems :many
-- WhyProblems returns the errors among the newest events of a session.
SELECT e.at, e.data FROM (
    SELECT l.seq, l.at, l.type, l.data FROM event_log l WHERE l.session_no = @session_no ORDER BY l.seq DESC LIMIT @max_events
) e
WHERE e.type = 'error' AND octet_length(e.data) <= 8192
ORDER BY e.seq DESC LIMIT @max_items;

-- name: WhyRetry :one
-- WhyRetry returns the newest block of a session if it reports that an agent is retrying a request
-- to its model.
SELECT coalesce(n.block ->> 'runId', '')::text AS run_id, coalesce(n.block ->> 'message', '')::text AS message, (n.block ->> 'createdAt')::timestamptz AS at
FROM (SELECT b.block FROM blocks b WHERE b.session_id = @session_id AND NOT b.removed ORDER BY b.position DESC LIMIT 1) n
WHERE n.block ->> 'type' = 'system' AND n.block ->> 'subtype' = 'retry';

-- name: WhyRuns :many
-- WhyRuns returns the newest runs of a session, or of one prompt among its last thousand.
SELECT r.id, r.prompt_id, r.generation, r.attempt, r.outcome, r.reason, r.doing, r.started_at, r.ended_at, r.parked_at, r.part
FROM (SELECT n.* FROM runs n WHERE n.session_id = @session_id ORDER BY n.no DESC LIMIT 1000) r
WHERE @prompt_id::text = '' OR r.prompt_id = @prompt_id
ORDER BY r.no DESC LIMIT @max_items;

-- name: WhyPrompt :one
-- WhyPrompt returns the processing prompt, else the first queued one, else the newest.
SELECT coalesce(
    (SELECT p.id FROM prompts p WHERE p.session_id = @session_id AND p.status IN ('queued', 'processing') ORDER BY (p.status = 'processing') DESC, p.rank, p.ordinal LIMIT 1),
    (SELECT p.id FROM prompts p WHERE p.session_id = @session_id ORDER BY p.ordinal DESC LIMIT 1),
    '')::text AS id;

-- name: WhyAhead :one
-- WhyAhead returns what a queued prompt waits for: the processing prompt, and the number of prompts
-- ahead of it.
SELECT
    coalesce(max(p.id) FILTER (WHERE p.status = 'processing'), '')::text AS processing,
    count(*) FILTER (WHERE p.status = 'queued' AND (p.rank, p.ordinal) < (@rank::bigint, @ordinal::bigint))::bigint AS ahead
FROM prompts p WHERE p.session_id = @session_id AND p.status IN ('queued', 'processing');

-- name: WhyWaiting :one
-- WhyWaiting returns the first prompt, among the last thousand, that was queued at a given time.
SELECT p.id, p.created_at FROM (
    SELECT n.id, n.rank, n.ordinal, n.created_at, n.started_at, n.ended_at FROM prompts n WHERE n.session_id = @session_id ORDER BY n.ordinal DESC LIMIT 1000
) p
WHERE p.created_at <= @at::timestamptz AND (p.started_at IS NULL OR p.started_at >= @at::timestamptz) AND (p.ended_at IS NULL OR p.ended_at >= @at::timestamptz)
ORDER BY p.rank, p.ordinal LIMIT 1;

-- name: WhyQuestions :many
-- WhyQuestions returns the newest questions of a session that a person was asked, or one of them,
-- without their text.
SELECT q.id, q.run_id, q.status, q.reason, q.created_at, q.expires_at, q.resolved_at, q.delivered_at, q.parked_part
FROM questions q
WHERE q.session_id = @session_id AND (@id::text = '' OR q.id = @id) AND (@id::text <> '' OR q.reason <> 'policy')
ORDER BY q.id DESC LIMIT @max_items;

-- name: OutageExtend :execrows
-- OutageExtend merges an outage into an overlapping one that another worker has recorded.
UPDATE outages o SET since = least(o.since, clock_timestamp() - make_interval(secs => @since_ago::double precision)),
    until = greatest(o.until, clock_timestamp() - make_interval(secs => @until_ago::double precision))
WHERE o.id = (
    SELECT x.id FROM outages x WHERE x.part = @part
      AND x.until >= clock_timestamp() - make_interval(secs => @since_ago) AND x.since <= clock_timestamp() - make_interval(secs => @until_ago)
    ORDER BY x.id DESC LIMIT 1);

-- name: OutageInsert :exec
INSERT INTO outages (part, since, until)
VALUES (@part, clock_timestamp() - make_interval(secs => @since_ago::double precision), clock_timestamp() - make_interval(secs => @until_ago::double precision));

-- name: OutagesForget :exec
-- OutagesForget keeps the newest outages.
DELETE FROM outages o WHERE o.id <= (SELECT x.id FROM outages x ORDER BY x.id DESC OFFSET @keep LIMIT 1);

-- name: WhyOutages :many
SELECT part, since, until FROM outages ORDER BY until DESC LIMIT @max_items;
