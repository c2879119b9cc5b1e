-- name: BlockList :many
SELECT * FROM blocks WHERE session_id = @session_id ORDER BY position;

-- name: BlocksLive :many
SELECT * FROM blocks WHERE session_id = @session_id AND live ORDER BY position;

-- name: BlocksGet :many
-- BlocksGet reads the blocks that a batch of appends is about.
SELECT b.* FROM blocks b
JOIN (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id) a
  ON b.session_id = a.session_id AND b.conversation_id = a.conversation_id AND b.block_id = a.block_id;

-- name: BlocksPut :exec
INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block)
SELECT a.session_id, a.conversation_id, a.block_id, a.first_seq, a.position, a.text_seq, a.live, a.removed, a.block::json
FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id,
    unnest(@first_seqs::bigint[]) AS first_seq, unnest(@positions::bigint[]) AS position, unnest(@text_seqs::bigint[]) AS text_seq,
    unnest(@lives::boolean[]) AS live, unnest(@removeds::boolean[]) AS removed, unnest(@blocks::text[]) AS block) a
ON CONFLICT (session_id, conversation_id, block_id) DO UPDATE SET
    position = excluded.position, text_seq = excluded.text_seq, live = excluded.live, removed = excluded.removed, block = excluded.block;
