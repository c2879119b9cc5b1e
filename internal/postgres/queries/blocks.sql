-- name: BlockPage :many
-- BlockPage reads the blocks between two positions, up to max_bytes in total; the first block is
-- always included.
SELECT p.session_id, p.conversation_id, p.block_id, p.first_seq, p.position, p.text_seq, p.live, p.removed, p.block, p.size, p.removed_seq
FROM (
    SELECT b.*, sum(coalesce(b.size, octet_length(b.block::text))) OVER (ORDER BY b.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM blocks b
    WHERE b.session_id = @session_id AND b.position > @after_position AND b.position <= @through_position
    ORDER BY b.position LIMIT @max_items
) p
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.position;

-- name: BlockPageAt :many
-- BlockPageAt is BlockPage for the conversation at an event: it omits blocks that appeared later,
-- and includes those that a revert has removed since.
SELECT p.session_id, p.conversation_id, p.block_id, p.first_seq, p.position, p.text_seq, p.live, false::boolean AS removed, p.block, p.size, p.removed_seq
FROM (
    SELECT b.*, sum(coalesce(b.size, octet_length(b.block::text))) OVER (ORDER BY b.first_seq, b.block_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM blocks b
    WHERE b.session_id = @session_id AND b.first_seq > @after_seq AND b.first_seq <= @through_seq AND (NOT b.removed OR b.removed_seq > @through_seq)
    ORDER BY b.first_seq, b.block_id LIMIT @max_items
) p
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.first_seq;

-- name: BlocksBetween :one
SELECT EXISTS (SELECT 1 FROM blocks WHERE session_id = @session_id AND position > @after_position AND position <= @through_position);

-- name: BlockTail :one
-- BlockTail returns the position after which the newest blocks up to another position begin, at
-- most max_items with about max_bytes in total, and how many blocks precede them; the newest is
-- always included.
WITH cut AS (
    SELECT coalesce(max(n.position), 0)::bigint AS after
    FROM (
        SELECT b.position, row_number() OVER (ORDER BY b.position DESC) AS place,
            sum(coalesce(b.size, octet_length(b.block::text))) OVER (ORDER BY b.position DESC) AS bytes
        FROM (
            SELECT t.position, t.size, t.block FROM blocks t WHERE t.session_id = @session_id AND t.position <= @through_position
            ORDER BY t.position DESC LIMIT @read_items
        ) b
    ) n
    WHERE n.place > 1 AND (n.bytes > @max_bytes::bigint OR n.place > @max_items::bigint)
)
SELECT c.after AS position, (
    SELECT count(*) FROM blocks b WHERE b.session_id = @session_id AND b.position <= c.after AND NOT b.removed
) AS left_out FROM cut c;

-- name: BlocksLive :many
-- BlocksLive returns the open blocks with positions from since on. Blocks of earlier runs than the
-- open one are not live.
SELECT * FROM blocks WHERE session_id = @session_id AND position >= @since AND live ORDER BY position;

-- name: BlocksGet :many
-- BlocksGet reads the blocks that a batch of appends concerns.
SELECT b.* FROM blocks b
JOIN (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id) a
  ON b.session_id = a.session_id AND b.conversation_id = a.conversation_id AND b.block_id = a.block_id;

-- name: BlocksPut :exec
INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block, size)
SELECT a.session_id, a.conversation_id, a.block_id, a.first_seq, a.position, a.text_seq, a.live, a.removed, a.block::json, octet_length(a.block)
FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id,
    unnest(@first_seqs::bigint[]) AS first_seq, unnest(@positions::bigint[]) AS position, unnest(@text_seqs::bigint[]) AS text_seq,
    unnest(@lives::boolean[]) AS live, unnest(@removeds::boolean[]) AS removed, unnest(@blocks::text[]) AS block) a
ON CONFLICT (session_id, conversation_id, block_id) DO UPDATE SET
    position = excluded.position, text_seq = excluded.text_seq, live = excluded.live, removed = excluded.removed, block = excluded.block, size = excluded.size;

-- name: BlocksAtWork :many
-- BlocksAtWork returns the running tool calls and subagents that appeared after an event.
SELECT conversation_id, block FROM blocks
WHERE session_id = @session_id AND first_seq >= @since AND NOT removed
  AND block ->> 'type' IN ('tool_use', 'subagent') AND block ->> 'status' IN ('streaming', 'pending', 'running');
