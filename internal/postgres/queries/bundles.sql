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

-- name: SnapshotKeep :exec
-- SnapshotKeep puts off the deletion of a snapshot that could not be restored.
UPDATE snapshots SET kept_until = greatest(kept_until, clock_timestamp() + make_interval(secs => @seconds)) WHERE id = @id;

-- name: ImagesKnown :many
-- ImagesKnown lists images that should exist at the provider besides one: the newest snapshots that
-- are kept, and the newest images that sandboxes were made of and that are no snapshots.
(SELECT n.id FROM snapshots n
 WHERE n.deleted_at IS NULL AND n.condemned_at IS NULL AND n.kept_until IS NULL AND n.id <> @except_id
 ORDER BY n.created_at DESC LIMIT 3)
UNION ALL
(SELECT i.image_id FROM (
    SELECT b.image_id, max(b.reserved_at) AS used FROM (SELECT image_id, reserved_at FROM sandboxes ORDER BY reserved_at DESC LIMIT 1000) b
    WHERE b.image_id <> '' AND b.image_id <> @except_id AND NOT EXISTS (SELECT FROM snapshots n WHERE n.id = b.image_id)
    GROUP BY b.image_id) i
 ORDER BY i.used DESC LIMIT 3);

-- name: BundlesRestorable :many
-- BundlesRestorable lists the bundles of a session that have another snapshot than one that could not
-- be restored, newest first.
SELECT b.* FROM bundles b JOIN snapshots n ON n.id = b.snapshot_id
WHERE b.session_id = @session_id AND n.deleted_at IS NULL AND n.condemned_at IS NULL
  AND (n.kept_until IS NULL OR n.kept_until < clock_timestamp()) AND b.snapshot_id <> @except_id
ORDER BY b.no DESC
LIMIT 5;
