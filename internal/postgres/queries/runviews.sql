-- name: RunBase :one
-- RunBase returns the bundle and settings with which a run of a session would begin. at_head means
-- that the bundle is the current state: no turn has begun since, and nothing was reverted.
SELECT s.profile, coalesce(s.head_bundle_id, '')::text AS head, (b.id IS NOT NULL
    AND coalesce((SELECT r.began_seq FROM runs r WHERE r.session_id = s.id ORDER BY r.no DESC LIMIT 1), 0) <= coalesce(b.last_seq, (b.manifest ->> 'lastSeq')::bigint, 0)
    AND NOT EXISTS (SELECT FROM blocks k WHERE k.session_id = s.id AND k.removed_seq > coalesce(b.last_seq, (b.manifest ->> 'lastSeq')::bigint, 0)))::boolean AS at_head
FROM sessions s LEFT JOIN bundles b ON b.id = s.head_bundle_id
WHERE s.id = @session_id;

-- name: RunPrompt :one
-- RunPrompt returns the prompt that has a run. A prompt of an earlier release is found by its
-- claims.
SELECT p.session_id, p.id FROM prompts p WHERE p.allotted_run_id = @run_id::text AND p.allotted_run_id <> ''
UNION ALL
SELECT r.session_id, r.prompt_id FROM runs r WHERE r.id = @run_id::text
LIMIT 1;

-- name: RunViewGet :one
SELECT * FROM run_views WHERE session_id = @session_id AND prompt_id = @prompt_id;

-- name: RunViewFirst :one
-- RunViewFirst returns the run of the first prompt of a session.
SELECT * FROM run_views WHERE session_id = @session_id AND ordinal = 1;

-- name: RunViews :many
SELECT * FROM run_views WHERE run_id = ANY(@run_ids::text[]) AND run_id <> '' ORDER BY run_id DESC;

-- name: RunsWindow :one
-- RunsWindow reads a number of runs before a given one, newest first, regardless of their
-- properties, so that the cost of a page is bounded. It returns the matching runs, how many it
-- read, and the last of them.
SELECT count(*)::bigint AS looked, coalesce(min(w.run_id), '')::text AS last,
    coalesce(array_agg(w.run_id ORDER BY w.run_id DESC) FILTER (
        WHERE (@status::text = '' OR w.status = @status) AND (@agent::text = '' OR s.agent = @agent)), '{}')::text[] AS run_ids
FROM (
    SELECT p.allotted_run_id AS run_id, p.session_id, p.status FROM prompts p
    WHERE p.allotted_run_id <> '' AND p.allotted_run_id < @before::text
    ORDER BY p.allotted_run_id DESC LIMIT @max_items
) w JOIN sessions s ON s.id = w.session_id;

-- name: RunsWindowOf :one
-- RunsWindowOf is RunsWindow for the runs of one session.
WITH mine AS MATERIALIZED (
    SELECT p.allotted_run_id AS run_id, p.status FROM prompts p WHERE p.session_id = @session_id
)
SELECT count(*)::bigint AS looked, coalesce(min(w.run_id), '')::text AS last,
    coalesce(array_agg(w.run_id ORDER BY w.run_id DESC) FILTER (
        WHERE (@status::text = '' OR w.status = @status) AND (@agent::text = '' OR s.agent = @agent)), '{}')::text[] AS run_ids
FROM (
    SELECT m.run_id, m.status FROM mine m WHERE m.run_id <> '' AND m.run_id < @before::text ORDER BY m.run_id DESC LIMIT @max_items
) w JOIN sessions s ON s.id = @session_id;
