-- name: WorkspaceDiff :one
SELECT coalesce(diff::text, '')::text AS diff, coalesce(patch, '')::bytea AS patch FROM workspaces WHERE session_id = @session_id;

-- name: WorkspaceDiffHead :one
-- WorkspaceDiffHead returns the diff without its patch.
SELECT coalesce(diff::text, '')::text AS diff FROM workspaces WHERE session_id = @session_id;

-- name: WorkspaceCounts :one
-- WorkspaceCounts includes the diff, without its patch, only if another one is about to replace it.
SELECT lineage, seq, base, files, saved_bytes, CASE WHEN @with_diff::boolean THEN coalesce(diff::text, '') ELSE '' END::text AS diff
FROM workspaces WHERE session_id = @session_id;

-- name: WorkspacePosition :one
-- WorkspacePosition returns how much of a workspace is stored, and the key of its newest diff.
SELECT lineage, seq, base, diff_key FROM workspaces WHERE session_id = @session_id;

-- name: WorkspacePut :exec
-- WorkspacePut leaves the diff unchanged if none is given.
INSERT INTO workspaces (session_id, lineage, seq, base, files, saved_bytes, diff, diff_key, patch, updated_at)
VALUES (@session_id, @lineage, @seq, @base, @files, @saved_bytes, @diff, @diff_key, @patch, @updated_at)
ON CONFLICT (session_id) DO UPDATE SET
    lineage = excluded.lineage, seq = excluded.seq, base = excluded.base, files = excluded.files,
    saved_bytes = excluded.saved_bytes, updated_at = excluded.updated_at,
    diff = CASE WHEN excluded.diff IS NULL THEN workspaces.diff ELSE excluded.diff END,
    diff_key = CASE WHEN excluded.diff IS NULL THEN workspaces.diff_key ELSE excluded.diff_key END,
    patch = CASE WHEN excluded.diff IS NULL THEN workspaces.patch ELSE excluded.patch END;

-- name: FilesSizes :many
-- FilesSizes returns what an append must know about the files that it changes.
SELECT path, size, unsaved, (deleted_at IS NOT NULL)::boolean AS deleted FROM workspace_files
WHERE session_id = @session_id AND path = ANY(@paths::text[]);

-- name: FilesPut :exec
-- FilesPut stores the current state of files; an empty content stands for none.
INSERT INTO workspace_files (session_id, path, size, sha256, mode, modified_at, content, unsaved)
SELECT @session_id, f.path, f.size, f.sha256, f.mode, f.modified_at, CASE WHEN f.unsaved = '' THEN f.content END, f.unsaved
FROM (SELECT unnest(@paths::text[]) AS path, unnest(@sizes::bigint[]) AS size, unnest(@sums::text[]) AS sha256,
    unnest(@modes::integer[]) AS mode, unnest(@modified::timestamptz[]) AS modified_at, unnest(@contents::bytea[]) AS content,
    unnest(@unsaved::text[]) AS unsaved) f
ON CONFLICT (session_id, path) DO UPDATE SET
    size = excluded.size, sha256 = excluded.sha256, mode = excluded.mode, modified_at = excluded.modified_at,
    content = excluded.content, unsaved = excluded.unsaved, deleted_at = NULL;

-- name: FilesDelete :exec
UPDATE workspace_files SET content = NULL, deleted_at = @at::timestamptz
WHERE session_id = @session_id AND path = ANY(@paths::text[]) AND deleted_at IS NULL;

-- name: FilesForget :exec
-- FilesForget keeps the newest of the deleted files.
DELETE FROM workspace_files w WHERE w.session_id = @session_id AND w.path IN (
    SELECT f.path FROM workspace_files f WHERE f.session_id = @session_id AND f.deleted_at IS NOT NULL
    ORDER BY f.deleted_at DESC, f.path OFFSET @keep
);

-- name: FilesKnown :many
SELECT path, size, sha256, mode, unsaved FROM workspace_files
WHERE session_id = @session_id AND deleted_at IS NULL ORDER BY path;

-- name: FilesList :many
SELECT path, size, sha256, mode, modified_at, unsaved FROM workspace_files
WHERE session_id = @session_id AND deleted_at IS NULL AND starts_with(path, @prefix::text) AND path > @after::text
ORDER BY path LIMIT @max_items;

-- name: FileGet :one
SELECT * FROM workspace_files WHERE session_id = @session_id AND path = @path;

-- name: EpochBegin :exec
-- EpochBegin begins the next epoch of a workspace: files that are replaced from now on are kept for
-- the bundle that was just committed.
INSERT INTO workspaces (session_id, epoch, updated_at) VALUES (@session_id, 1, @at::timestamptz)
ON CONFLICT (session_id) DO UPDATE SET epoch = workspaces.epoch + 1;

-- name: EarlierFilesForget :exec
-- EarlierFilesForget deletes files that belong to no bundle of a session any more.
DELETE FROM earlier_files e WHERE e.session_id = @session_id
    AND NOT EXISTS (SELECT FROM bundles b WHERE b.session_id = e.session_id AND b.files_epoch BETWEEN e.from_epoch AND e.until_epoch);

-- name: EarlierDiffsForget :exec
DELETE FROM earlier_diffs e WHERE e.session_id = @session_id
    AND NOT EXISTS (SELECT FROM bundles b WHERE b.session_id = e.session_id AND b.files_epoch BETWEEN e.from_epoch AND e.until_epoch);

-- name: BundleFilesAt :one
-- BundleFilesAt returns the session and the epoch in which the files of a bundle are stored; a
-- negative epoch if they are not. The files of a fork that has outlived its parent are in the epoch
-- -1. A purge deletes the workspace of a session before its bundles.
SELECT o.session_id, coalesce(o.files_epoch >= w.kept_epoch OR o.files_epoch = -1, false)::boolean AS kept, coalesce(o.files_epoch, 0)::bigint AS epoch
FROM bundles b JOIN bundles o ON o.id = coalesce(nullif(b.files_of, ''), b.id) LEFT JOIN workspaces w ON w.session_id = o.session_id
WHERE b.id = @id AND o.files_epoch IS NOT NULL;

-- name: FilesListAt :many
SELECT x.path, x.size, x.sha256, x.mode, x.modified_at, x.unsaved FROM (
    SELECT f.path, f.size, f.sha256, f.mode, f.modified_at, f.unsaved FROM workspace_files f
    WHERE f.session_id = @session_id AND f.epoch <= @epoch::bigint AND f.deleted_at IS NULL
    UNION ALL
    SELECT e.path, e.size, e.sha256, e.mode, e.modified_at, e.unsaved FROM earlier_files e
    WHERE e.session_id = @session_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
) x
WHERE starts_with(x.path, @prefix::text) AND x.path > @after::text
ORDER BY x.path LIMIT @max_items;

-- name: FileGetAt :one
SELECT f.path, f.size, f.sha256, f.mode, f.modified_at, f.unsaved, f.content FROM workspace_files f
WHERE f.session_id = @session_id AND f.path = @path AND f.epoch <= @epoch::bigint AND f.deleted_at IS NULL
UNION ALL
SELECT e.path, e.size, e.sha256, e.mode, e.modified_at, e.unsaved, e.content FROM earlier_files e
WHERE e.session_id = @session_id AND e.path = @path AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
LIMIT 1;

-- name: DiffGetAt :one
SELECT coalesce(w.diff::text, '')::text AS diff, coalesce(w.patch, '')::bytea AS patch FROM workspaces w
WHERE w.session_id = @session_id AND w.diff_epoch <= @epoch::bigint
UNION ALL
SELECT e.diff::text, coalesce(e.patch, '')::bytea FROM earlier_diffs e
WHERE e.session_id = @session_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
LIMIT 1;

-- name: FilesHeirs :many
-- FilesHeirs returns, for each bundle of a session whose files are shared with bundles of forks,
-- the fork that must get a copy, and whether there is a complete one, as in BundleFilesAt.
SELECT DISTINCT ON (b.files_of) b.files_of AS bundle_id, o.files_epoch::bigint AS epoch, b.id AS heir_id, b.session_id AS heir_session_id,
    coalesce(o.files_epoch >= w.kept_epoch OR o.files_epoch = -1, false)::boolean AS kept
FROM bundles b JOIN bundles o ON o.id = b.files_of LEFT JOIN workspaces w ON w.session_id = o.session_id
WHERE o.session_id = @session_id AND b.session_id <> @session_id AND o.files_epoch IS NOT NULL
  AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = b.session_id)
ORDER BY b.files_of, b.session_id, b.no;

-- name: FilesInherit :exec
INSERT INTO earlier_files (session_id, path, from_epoch, until_epoch, size, sha256, mode, modified_at, content, unsaved)
SELECT @heir_session_id::text, x.path, -1, -1, x.size, x.sha256, x.mode, x.modified_at, x.content, x.unsaved FROM (
    SELECT f.path, f.size, f.sha256, f.mode, f.modified_at, f.content, f.unsaved FROM workspace_files f
    WHERE f.session_id = @session_id AND f.epoch <= @epoch::bigint AND f.deleted_at IS NULL
    UNION ALL
    SELECT e.path, e.size, e.sha256, e.mode, e.modified_at, e.content, e.unsaved FROM earlier_files e
    WHERE e.session_id = @session_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
) x
ON CONFLICT DO NOTHING;

-- name: DiffInherit :exec
INSERT INTO earlier_diffs (session_id, from_epoch, until_epoch, diff, patch)
SELECT @heir_session_id::text, -1, -1, x.diff, x.patch FROM (
    SELECT w.diff, w.patch FROM workspaces w WHERE w.session_id = @session_id AND w.diff_epoch <= @epoch::bigint AND w.diff IS NOT NULL
    UNION ALL
    SELECT e.diff, e.patch FROM earlier_diffs e WHERE e.session_id = @session_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
) x
ON CONFLICT DO NOTHING;

-- name: BundlesInherit :exec
-- BundlesInherit redirects all bundles that share the files of a bundle that is about to be deleted
-- to the copy of its heir.
UPDATE bundles b SET files_epoch = CASE WHEN b.session_id = @heir_session_id::text THEN -1 END,
    files_of = CASE WHEN b.session_id = @heir_session_id::text THEN '' ELSE @heir_id::text END
WHERE b.files_of = @bundle_id::text AND b.session_id <> @session_id::text;

-- name: BundlesDisinherit :exec
-- BundlesDisinherit records that the files of bundles are not stored which share those of a bundle
-- that is about to be deleted.
UPDATE bundles b SET files_epoch = NULL, files_of = '' WHERE b.files_of = @bundle_id::text AND b.session_id <> @session_id::text;

-- name: FilesRevert :exec
-- FilesRevert resets the files of a session's workspace to those that the session, or its parent,
-- had in an epoch. FilesRevertDeleted precedes it.
INSERT INTO workspace_files (session_id, path, size, sha256, mode, modified_at, content, unsaved)
SELECT @session_id::text, x.path, x.size, x.sha256, x.mode, x.modified_at, x.content, x.unsaved FROM (
    SELECT f.path, f.size, f.sha256, f.mode, f.modified_at, f.content, f.unsaved FROM workspace_files f
    WHERE f.session_id = @from_id AND f.epoch <= @epoch::bigint AND f.deleted_at IS NULL
    UNION ALL
    SELECT e.path, e.size, e.sha256, e.mode, e.modified_at, e.content, e.unsaved FROM earlier_files e
    WHERE e.session_id = @from_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
) x
ON CONFLICT (session_id, path) DO UPDATE SET
    size = excluded.size, sha256 = excluded.sha256, mode = excluded.mode, modified_at = excluded.modified_at,
    content = excluded.content, unsaved = excluded.unsaved, deleted_at = NULL
    WHERE (workspace_files.size, workspace_files.sha256, workspace_files.mode, workspace_files.unsaved, workspace_files.deleted_at)
        IS DISTINCT FROM (excluded.size, excluded.sha256, excluded.mode, excluded.unsaved, NULL);

-- name: FilesRevertDeleted :exec
UPDATE workspace_files w SET content = NULL, deleted_at = @at::timestamptz
WHERE w.session_id = @session_id AND w.deleted_at IS NULL
  AND NOT EXISTS (
    SELECT FROM workspace_files f WHERE f.session_id = @from_id AND f.path = w.path AND f.epoch <= @epoch::bigint AND f.deleted_at IS NULL)
  AND NOT EXISTS (
    SELECT FROM earlier_files e WHERE e.session_id = @from_id AND e.path = w.path AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch);

-- name: WorkspaceRevert :exec
-- WorkspaceRevert recounts the files and restores the diff of the epoch.
UPDATE workspaces w SET
    files = (SELECT count(*) FROM workspace_files f WHERE f.session_id = w.session_id AND f.deleted_at IS NULL),
    saved_bytes = (SELECT coalesce(sum(f.size), 0) FROM workspace_files f WHERE f.session_id = w.session_id AND f.deleted_at IS NULL AND f.unsaved = ''),
    diff = d.diff, diff_key = coalesce(d.diff ->> 'key', ''), patch = d.patch
FROM (SELECT 1) one LEFT JOIN (
    SELECT o.diff, o.patch FROM workspaces o WHERE o.session_id = @from_id AND o.diff_epoch <= @epoch::bigint
    UNION ALL
    SELECT e.diff, e.patch FROM earlier_diffs e WHERE e.session_id = @from_id AND @epoch::bigint BETWEEN e.from_epoch AND e.until_epoch
    LIMIT 1
) d ON true
WHERE w.session_id = @session_id;
