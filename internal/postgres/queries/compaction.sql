-- name: SessionsToCompact :many
-- SessionsToCompact reads the next sessions in the order of their numbers and returns those with
-- events older than an age that compaction has not read yet.
SELECT s.no, s.id, greatest(s.compact_seq, s.first_seq - 1)::bigint AS after_seq, coalesce(s.last_seq > s.compact_seq AND (
        SELECT e.at < clock_timestamp() - make_interval(secs => @age_seconds::double precision)
        FROM event_log e WHERE e.session_no = s.no AND e.seq > greatest(s.compact_seq, s.first_seq - 1) ORDER BY e.seq LIMIT 1), false)::boolean AS due
FROM sessions s WHERE s.no > @after_no ORDER BY s.no LIMIT @max_items;

-- name: EventsToCompact :many
-- EventsToCompact reads the next events of a session, deltas with their data. It ends with the
-- delta with which their data reaches max_bytes.
SELECT p.seq, p.old::boolean AS old, p.is_delta::boolean AS is_delta,
    coalesce(c.id, 'main')::text AS conversation_id, CASE WHEN p.is_delta THEN p.data ELSE '' END::text AS delta
FROM (
    SELECT e.session_no, e.seq, e.conversation_no, e.data, e.type = 'text_delta' AS is_delta,
        e.at < clock_timestamp() - make_interval(secs => @age_seconds::double precision) AS old,
        sum(CASE WHEN e.type = 'text_delta' THEN octet_length(e.data) ELSE 0 END) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM event_log e WHERE e.session_no = @session_no AND e.seq > @after_seq ORDER BY e.seq LIMIT @max_items
) p
LEFT JOIN LATERAL (SELECT k.id FROM event_conversations k WHERE p.conversation_no > 1 AND k.session_no = p.session_no AND k.no = p.conversation_no LIMIT 1) c ON true
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.seq;

-- name: BlocksWhole :many
-- BlocksWhole returns the blocks of a session whose complete text is in a block_complete, and the
-- position of that event.
SELECT b.conversation_id, b.block_id, b.text_seq
FROM (SELECT unnest(@conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id) k
JOIN blocks b ON b.session_id = @session_id AND b.conversation_id = k.conversation_id AND b.block_id = k.block_id
JOIN event_log e ON e.session_no = @session_no AND e.seq = b.text_seq AND e.type = 'block_complete';

-- name: EventsDrop :one
-- EventsDrop deletes events of a session and records how far compaction has read, unless another
-- transaction has locked the session.
WITH held AS (
    SELECT s.no FROM sessions s WHERE s.no = @session_no FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE sessions s SET compact_seq = greatest(s.compact_seq, @looked::bigint), dropped_seq = greatest(s.dropped_seq, @dropped::bigint)
    FROM held WHERE s.no = held.no RETURNING s.no
), gone AS (
    DELETE FROM event_log e WHERE e.session_no = @session_no AND e.seq = ANY(@seqs::bigint[]) AND EXISTS (SELECT FROM held) RETURNING e.seq
)
SELECT (SELECT count(*) FROM moved)::bigint AS sessions, (SELECT count(*) FROM gone)::bigint AS events;

-- name: EventsDropped :one
SELECT dropped_seq FROM sessions WHERE id = @id;
