-- name: WorkspaceDiff :one
SELECT coalesce(diff::text, '')::text AS diff, coalesce(patch, '')::bytea AS patch FROM workspaces WHERE session_id = @session_id;

-- name: WorkspaceDiffHead :one
-- WorkspaceDiffHead is the diff without its patch.
SELECT coalesce(diff::text, '')::text AS diff FROM workspaces WHERE session_id = @session_id;

-- name: WorkspaceCounts :one
-- WorkspaceCounts has the diff, without its patch, only if another one takes its place.
SELECT lineage, seq, base, files, saved_bytes, CASE WHEN @with_diff::boolean THEN coalesce(diff::text, '') ELSE '' END::text AS diff
FROM workspaces WHERE session_id = @session_id;

-- name: WorkspacePosition :one
-- WorkspacePosition is how much of a workspace is stored, and by what its diff was taken.
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
-- FilesSizes are what a batch must know of the files that it is about.
SELECT path, size, unsaved, (deleted_at IS NOT NULL)::boolean AS deleted FROM workspace_files
WHERE session_id = @session_id AND path = ANY(@paths::text[]);

-- name: FilesPut :exec
-- FilesPut stores files as they are now; an empty content stands for none.
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
-- FilesForget keeps the newest of the files that are gone.
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
