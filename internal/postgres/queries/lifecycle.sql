-- name: LifecycleWaits :one
SELECT EXISTS (SELECT FROM lifecycle_events WHERE n IS NULL);

-- name: LifecycleLock :one
-- LifecycleLock returns no row while another transaction assigns positions.
SELECT n FROM lifecycle_head FOR UPDATE SKIP LOCKED;

-- name: LifecycleNumber :one
-- LifecycleNumber assigns the next positions to committed rows. It adds session.idle after the last
-- event of a prompt if the session has no unfinished prompts.
WITH due AS (
    SELECT e.place, e.session_no, e.seq, e.type, e.at FROM lifecycle_events e WHERE e.n IS NULL ORDER BY e.place LIMIT @max_items
), idle AS (
    SELECT d.place, d.session_no, d.seq, d.at
    FROM (SELECT DISTINCT ON (session_no) place, session_no, seq, at FROM due WHERE type LIKE 'prompt.%' ORDER BY session_no, place DESC) d
    JOIN sessions s ON s.no = d.session_no
    WHERE s.status <> 'terminated' AND NOT EXISTS (SELECT FROM prompts p WHERE p.session_id = s.id AND p.status IN ('queued', 'processing'))
), ordered AS (
    SELECT a.place, a.idle, h.n + row_number() OVER (ORDER BY a.place, a.idle) AS n
    FROM lifecycle_head h, (SELECT place, false AS idle FROM due UNION ALL SELECT place, true FROM idle) a
), numbered AS (
    UPDATE lifecycle_events e SET n = o.n FROM ordered o WHERE e.place = o.place AND NOT o.idle
), added AS (
    INSERT INTO lifecycle_events (n, session_no, seq, type, at)
    SELECT o.n, i.session_no, i.seq, 'session.idle', i.at FROM idle i JOIN ordered o ON o.place = i.place AND o.idle
)
UPDATE lifecycle_head SET n = greatest(n, (SELECT coalesce(max(o.n), 0) FROM ordered o)) RETURNING n;

-- name: LifecycleBounds :one
SELECT n, kept FROM lifecycle_head;

-- name: LifecycleScan :many
-- LifecycleScan returns which events after a position match the filters, and the size of each. An
-- empty filter matches all.
SELECT p.n::bigint AS n,
    (s.id IS NOT NULL AND (cardinality(@types::text[]) = 0 OR p.type = ANY(@types::text[])) AND (@session_id::text = '' OR s.id = @session_id::text)
        AND (@agent::text = '' OR s.agent = @agent::text) AND CASE WHEN @metadata::jsonb = '{}' THEN true ELSE s.metadata::jsonb @> @metadata::jsonb END)::boolean AS selected,
    (octet_length(coalesce((SELECT l.data FROM event_log l WHERE p.seq > 0 AND l.session_no = p.session_no AND l.seq = p.seq), '')::text)
        + coalesce(octet_length(s.metadata::text), 0))::bigint AS bytes
FROM (SELECT e.n, e.session_no, e.seq, e.type FROM lifecycle_events e WHERE e.n > @after_n::bigint ORDER BY e.n LIMIT @max_items) p
LEFT JOIN sessions s ON s.no = p.session_no
    AND NOT EXISTS (SELECT FROM purges u WHERE u.session_id = s.id)
ORDER BY p.n;

-- name: LifecycleRead :many
-- LifecycleRead reads events with the current data of their sessions.
SELECT p.n::bigint AS n, p.type, p.at, p.seq, s.id AS session_id, s.agent, s.title, s.status, s.metadata,
    coalesce((SELECT l.data FROM event_log l WHERE p.seq > 0 AND l.session_no = p.session_no AND l.seq = p.seq), '')::text AS data
FROM (SELECT e.n, e.session_no, e.seq, e.type, e.at FROM lifecycle_events e WHERE e.n = ANY(@positions::bigint[])) p
LEFT JOIN sessions s ON s.no = p.session_no
    AND NOT EXISTS (SELECT FROM purges u WHERE u.session_id = s.id)
ORDER BY p.n;

-- name: LifecycleDelete :one
-- LifecycleDelete deletes the oldest rows, through the last one from before a time.
WITH old AS (
    SELECT max(p.n) AS n
    FROM (SELECT e.n, e.at FROM lifecycle_events e WHERE e.n > (SELECT h.kept FROM lifecycle_head h) ORDER BY e.n LIMIT @max_items) p
    WHERE p.at < @before::timestamptz
), gone AS (
    DELETE FROM lifecycle_events e USING old WHERE e.n <= old.n RETURNING e.n
), moved AS (
    UPDATE lifecycle_head SET kept = old.n FROM old WHERE old.n IS NOT NULL
)
SELECT count(*) FROM gone;
