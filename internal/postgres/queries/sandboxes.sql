-- name: SandboxReserve :exec
INSERT INTO sandboxes (session_id, generation, image_id, reserved_at)
VALUES (@session_id, @generation, @image_id, @reserved_at)
ON CONFLICT (session_id, generation) DO UPDATE SET image_id = excluded.image_id;

-- name: SandboxGet :one
SELECT * FROM sandboxes WHERE session_id = @session_id AND generation = @generation;

-- name: SandboxRecord :execrows
UPDATE sandboxes SET sandbox_id = @sandbox_id, status = @status, deadline = @deadline::timestamptz, seen_at = @at::timestamptz,
    ready_at = CASE WHEN @status = 'ready' THEN coalesce(ready_at, @at::timestamptz) ELSE ready_at END
WHERE session_id = @session_id AND generation = @generation AND ended_at IS NULL;

-- name: SandboxesSeen :exec
-- SandboxesSeen stores the health of sandboxes whose status has changed.
UPDATE sandboxes b SET status = f.status, seen_at = clock_timestamp()
FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@generations::bigint[]) AS generation, unnest(@statuses::text[]) AS status) f
WHERE b.session_id = f.session_id AND b.generation = f.generation AND b.ended_at IS NULL AND b.status <> f.status;

-- name: SandboxEnd :exec
-- SandboxEnd also schedules the search for the exit image.
WITH ended AS (
    UPDATE sandboxes SET status = 'terminated', ended_at = @at::timestamptz, end_reason = @reason
    WHERE session_id = @session_id AND generation = @generation AND ended_at IS NULL
    RETURNING sandbox_id
)
INSERT INTO exit_images (sandbox_id, session_id, generation)
SELECT ended.sandbox_id, @session_id, @generation FROM ended WHERE ended.sandbox_id <> ''
ON CONFLICT (sandbox_id) DO NOTHING;

-- name: SandboxesOpen :many
SELECT b.session_id, b.generation, b.sandbox_id, b.image_id, s.status, (b.generation = s.generation)::boolean AS is_current, b.reserved_at, b.ready_at, b.deadline, b.workspace_changed,
    s.transition_no
FROM sandboxes b JOIN sessions s ON s.id = b.session_id
WHERE b.ended_at IS NULL AND (@session_id::text = '' OR b.session_id = @session_id)
ORDER BY b.session_id, b.generation;

-- name: SandboxUnsaved :one
-- SandboxUnsaved finds the newest generation in which the session has worked since its newest
-- bundle. Its sandbox may have ended. It looks at the newest runs first. waited is how long the
-- session has been restoring, in seconds.
SELECT b.session_id, b.generation, b.sandbox_id, s.status, (b.generation = s.generation)::boolean AS is_current,
    b.reserved_at, b.ready_at, b.deadline,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - t.at) FROM session_transitions t
        WHERE t.session_id = s.id AND t.no = s.transition_no AND t.to_status = 'restoring'), 0)::float8 AS waited
FROM sandboxes b
JOIN sessions s ON s.id = b.session_id
LEFT JOIN bundles h ON h.id = s.head_bundle_id
WHERE b.session_id = @session_id AND b.sandbox_id <> ''
  AND (h.id IS NULL OR b.generation > h.generation OR b.generation = h.generation AND h.checkpoint)
  AND (coalesce((SELECT true FROM runs r WHERE r.session_id = b.session_id AND r.generation = b.generation ORDER BY r.no DESC LIMIT 1), false)
    OR EXISTS (SELECT FROM session_transitions t
        WHERE t.session_id = b.session_id AND t.generation = b.generation AND t.to_status = 'running'))
ORDER BY b.generation DESC
LIMIT 1;

-- name: SandboxesFailed :one
-- SandboxesFailed counts the sandboxes of a session that were created from an image and ended
-- before their runner first responded.
SELECT count(*) FROM sandboxes
WHERE session_id = @session_id AND image_id = @image_id AND sandbox_id <> '' AND ready_at IS NULL AND ended_at IS NOT NULL;

-- name: SandboxesPage :many
-- SandboxesPage lists open sandboxes ordered by key.
SELECT b.session_id, b.generation, b.sandbox_id, s.status, b.status AS health, (b.generation = s.generation)::boolean AS is_current, b.reserved_at, b.ready_at, b.deadline
FROM sandboxes b JOIN sessions s ON s.id = b.session_id
WHERE b.ended_at IS NULL AND (b.session_id, b.generation) > (@after_session::text, @after_generation::bigint)
ORDER BY b.session_id, b.generation
LIMIT @max_items;

-- name: SandboxesAbandoned :many
-- SandboxesAbandoned lists open sandboxes that their session no longer uses. It omits a sandbox in
-- which the session has worked since its newest bundle until the session runs without it, sleeps or
-- is terminated: a restore reserves the next generation before it saves the previous one.
SELECT b.session_id, b.generation, b.sandbox_id, s.status, (b.generation = s.generation)::boolean AS is_current, b.reserved_at, b.ready_at, b.deadline
FROM sandboxes b JOIN sessions s ON s.id = b.session_id
WHERE b.ended_at IS NULL AND (b.session_id, b.generation) > (@after_session::text, @after_generation::bigint)
  AND (b.generation <> s.generation OR s.status IN ('hibernated', 'terminated')) AND b.reserved_at < clock_timestamp() - make_interval(secs => @seconds)
  AND (
    s.status IN ('running', 'hibernated', 'terminated')
    OR NOT EXISTS (SELECT FROM runs r WHERE r.session_id = b.session_id AND r.generation = b.generation)
        AND NOT EXISTS (SELECT FROM session_transitions t
            WHERE t.session_id = b.session_id AND t.generation = b.generation AND t.to_status = 'running')
    OR EXISTS (SELECT FROM bundles h
        WHERE h.id = s.head_bundle_id AND (h.generation > b.generation OR h.generation = b.generation AND NOT h.checkpoint))
  )
ORDER BY b.session_id, b.generation
LIMIT @max_items;

-- name: SandboxesUnowned :many
-- SandboxesUnowned returns the positions, from 1, of those without an open row.
SELECT f.at::bigint
FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@generations::bigint[]) AS generation, generate_subscripts(@session_ids::text[], 1) AS at) f
WHERE NOT EXISTS (SELECT FROM sandboxes b WHERE b.session_id = f.session_id AND b.generation = f.generation AND b.ended_at IS NULL);

-- name: SandboxLinkKeySet :one
-- SandboxLinkKeySet keeps the first key of a sandbox.
UPDATE sandboxes SET link_key = coalesce(link_key, @link_key) WHERE session_id = @session_id AND generation = @generation
RETURNING link_key;

-- name: SandboxLinkKey :one
SELECT coalesce(link_key, '') FROM sandboxes WHERE session_id = @session_id AND generation = @generation;

-- name: SandboxesWorkspaceChanged :exec
UPDATE sandboxes SET workspace_changed = true WHERE session_id = @session_id AND ended_at IS NULL;

-- name: SandboxCloned :exec
UPDATE sandboxes SET cloned_at = coalesce(cloned_at, clock_timestamp()) WHERE session_id = @session_id AND generation = @generation;

-- name: SandboxIsCloned :one
SELECT (cloned_at IS NOT NULL)::boolean FROM sandboxes WHERE session_id = @session_id AND generation = @generation;
