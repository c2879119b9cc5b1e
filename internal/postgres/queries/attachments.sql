-- name: AttachmentsTotal :one
-- AttachmentsTotal sums up the stored attachments of a session from one origin.
SELECT count(*) AS items, coalesce(sum(bytes), 0)::bigint AS bytes FROM attachments WHERE session_id = @session_id AND origin = @origin;

-- name: AttachmentsStored :many
SELECT id FROM attachments WHERE session_id = @session_id AND id = ANY(@ids::text[]);

-- name: AttachmentPut :exec
INSERT INTO attachments (session_id, id, origin, name, media_type, bytes, content, created_at)
VALUES (@session_id, @id, @origin, @name, @media_type, @bytes, @content, @created_at)
ON CONFLICT (session_id, id) DO NOTHING;

-- name: AttachmentGet :one
SELECT id, name, media_type, bytes, content FROM attachments WHERE session_id = @session_id AND id = @id;
