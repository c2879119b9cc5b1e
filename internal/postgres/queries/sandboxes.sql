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

-- name: SandboxSeen :exec
UPDATE sandboxes SET status = @status, seen_at = clock_timestamp()
WHERE session_id = @session_id AND generation = @generation AND ended_at IS NULL;

-- name: SandboxEnd :exec
UPDATE sandboxes SET status = 'terminated', ended_at = @at::timestamptz, end_reason = @reason
WHERE session_id = @session_id AND generation = @generation AND ended_at IS NULL;

-- name: SandboxesOpen :many
SELECT b.session_id, b.generation, b.sandbox_id, s.status, (b.generation = s.generation)::boolean AS is_current, b.reserved_at, b.ready_at, b.deadline
FROM sandboxes b JOIN sessions s ON s.id = b.session_id
WHERE b.ended_at IS NULL AND (@session_id::text = '' OR b.session_id = @session_id)
ORDER BY b.session_id, b.generation;

-- name: SandboxUnsaved :one
-- SandboxUnsaved finds the newest generation in which the session has worked and
-- that its newest bundle does not cover. Its sandbox may have ended. waited is how long the session
-- has been restoring, in seconds.
SELECT b.session_id, b.generation, b.sandbox_id, s.status, (b.generation = s.generation)::boolean AS is_current,
    b.reserved_at, b.ready_at, b.deadline,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - t.at) FROM session_transitions t
        WHERE t.session_id = s.id AND t.no = s.transition_no AND t.to_status = 'restoring'), 0)::float8 AS waited
FROM sandboxes b
JOIN sessions s ON s.id = b.session_id
LEFT JOIN bundles h ON h.id = s.head_bundle_id
WHERE b.session_id = @session_id AND b.sandbox_id <> ''
  AND (h.id IS NULL OR b.generation > h.generation OR b.generation = h.generation AND h.checkpoint)
  AND (EXISTS (SELECT FROM runs r WHERE r.session_id = b.session_id AND r.generation = b.generation)
    OR EXISTS (SELECT FROM session_transitions t
        WHERE t.session_id = b.session_id AND t.generation = b.generation AND t.to_status = 'running'))
ORDER BY b.generation DESC
LIMIT 1;

-- name: SandboxesFailed :one
-- SandboxesFailed counts the sandboxes of a session that were made of an image and ended before
-- their runner ever answered.
SELECT count(*) FROM sandboxes
WHERE session_id = @session_id AND image_id = @image_id AND sandbox_id <> '' AND ready_at IS NULL AND ended_at IS NOT NULL;
