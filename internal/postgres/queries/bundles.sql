-- name: SnapshotInsert :exec
INSERT INTO snapshots (id, session_id, generation) VALUES (@id, @session_id, @generation)
ON CONFLICT (id) DO NOTHING;

-- name: SnapshotLock :one
SELECT * FROM snapshots WHERE id = @id FOR UPDATE;

-- name: SnapshotsUnneeded :many
-- SnapshotsUnneeded finds what may be deleted: what no bundle needs any more, what
-- no bundle was made of in time, and what was found so before.
SELECT u.id FROM snapshot_uses u
WHERE u.deleted_at IS NULL
  AND (u.condemned_at IS NOT NULL OR u.session_over OR NOT u.needed AND (u.bundled OR u.created_at < @before::timestamptz))
ORDER BY u.created_at, u.id
LIMIT @max_items;

-- name: SnapshotsLock :many
SELECT id FROM snapshots WHERE id = ANY(@ids::text[]) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: SnapshotsCondemn :many
-- SnapshotsCondemn marks those of them that are still unneeded now that they are
-- locked. From here on no bundle can be made of them: the deletion is safe.
UPDATE snapshots n SET condemned_at = coalesce(n.condemned_at, now())
FROM snapshot_uses u
WHERE n.id = ANY(@ids::text[]) AND u.id = n.id AND n.deleted_at IS NULL
  AND (n.condemned_at IS NOT NULL OR u.session_over OR NOT u.needed)
RETURNING n.id;

-- name: SnapshotForget :exec
UPDATE snapshots SET deleted_at = coalesce(deleted_at, now()), condemned_at = coalesce(condemned_at, now()) WHERE id = @id;

-- name: BundleInsert :exec
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at)
VALUES (@id, @session_id, @parent_id, @generation, @snapshot_id, @manifest, @verified, @checkpoint, @created_at);

-- name: BundleGet :one
SELECT * FROM bundles WHERE id = @id;

-- name: BundleGetHead :one
SELECT b.* FROM bundles b JOIN sessions s ON s.head_bundle_id = b.id WHERE s.id = @session_id;

-- name: BundleProve :execrows
UPDATE bundles SET proved_at = coalesce(proved_at, now()) WHERE id = @id;
