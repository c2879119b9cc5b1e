-- name: EventsInsert :exec
-- EventsInsert appends events to the log. A run is given by its number, or by its id if run_no is
-- below zero.
INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
SELECT a.session_no, a.seq, a.at,
    CASE WHEN a.run_no >= 0 THEN a.run_no ELSE coalesce((SELECT r.no FROM runs r WHERE r.id = a.run_id), 0) END,
    CASE a.conversation_id WHEN '' THEN 0 WHEN 'main' THEN 1
        ELSE (SELECT c.no FROM event_conversations c WHERE c.session_no = a.session_no AND c.id = a.conversation_id) END,
    a.type, a.data
FROM (SELECT unnest(@session_nos::bigint[]) AS session_no, unnest(@seqs::bigint[]) AS seq, unnest(@types::text[]) AS type,
    unnest(@conversation_ids::text[]) AS conversation_id, unnest(@run_ids::text[]) AS run_id, unnest(@run_nos::integer[]) AS run_no,
    unnest(@ats::timestamptz[]) AS at, unnest(@datas::text[]) AS data) a;

-- name: EventsExtend :many
-- EventsExtend appends one delta to the log of each session, with the state of its run after it,
-- and returns the session and the position of each delta that it has appended. It suffices if no other data decides about
-- the append: the run has the attempt's token and none of the delta's frames, and its block accepts
-- text. It skips all other sessions, and those that other transactions have locked.
--
-- The statement reads rows in a snapshot from before it has the locks, so it checks again what it
-- changes: it locks the session, then updates the run if the run still satisfies the conditions,
-- and only adds events of updated runs to the log. The conditions on runs are written so that only
-- the index of ids fits them.
WITH a AS (
    SELECT unnest(@session_ids::text[]) AS session_id, unnest(@run_ids::text[]) AS run_id, unnest(@generations::bigint[]) AS generation,
        unnest(@tokens::text[]) AS token, unnest(@first_frames::bigint[]) AS first_frame, unnest(@last_frames::bigint[]) AS last_frame,
        unnest(@translators::bytea[]) AS translator, unnest(@steers::boolean[]) AS steers, unnest(@conversation_nos::integer[]) AS conversation_no,
        unnest(@block_ids::text[]) AS block_id, unnest(@ats::timestamptz[]) AS at, unnest(@datas::text[]) AS data
), held AS MATERIALIZED (
    SELECT a.*, s.no AS session_no, s.last_seq + 1 AS seq
    FROM a, LATERAL (
        SELECT o.no, o.last_seq, o.generation, o.status FROM sessions o WHERE o.id = a.session_id FOR NO KEY UPDATE SKIP LOCKED
    ) s
    WHERE s.generation <= a.generation AND s.status <> 'terminated'
), moved AS (
    UPDATE runs r SET last_frame = h.last_frame, translator = h.translator, steers_token = CASE WHEN h.steers THEN r.token ELSE '' END
    FROM held h
    WHERE r.id = h.run_id AND r.session_id IS NOT DISTINCT FROM h.session_id AND r.outcome = '' AND r.token = h.token AND r.last_frame < h.first_frame
        AND NOT EXISTS (
            SELECT FROM blocks b WHERE b.session_id = h.session_id AND b.conversation_id = 'main' AND b.block_id = h.block_id
                AND NOT b.live AND NOT b.removed
        )
    RETURNING r.no AS run_no, h.session_id, h.session_no, h.seq, h.conversation_no, h.at, h.data
), advanced AS (
    UPDATE sessions s SET last_seq = m.seq FROM moved m WHERE s.id = m.session_id
), logged AS (
    INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
    SELECT m.session_no, m.seq, m.at, m.run_no, m.conversation_no, 'text_delta', m.data FROM moved m
)
SELECT m.session_id::text AS session_id, m.seq::bigint AS seq FROM moved m;

-- name: EventConversationsInsert :exec
-- EventConversationsInsert assigns numbers to conversations that have none yet, in the order given.
INSERT INTO event_conversations (session_no, no, id)
SELECT a.session_no,
    coalesce((SELECT max(c.no) FROM event_conversations c WHERE c.session_no = a.session_no), 1)
        + row_number() OVER (PARTITION BY a.session_no ORDER BY a.place),
    a.id
FROM (SELECT unnest(@session_nos::bigint[]) AS session_no, unnest(@ids::text[]) AS id, generate_subscripts(@ids::text[], 1) AS place) a
WHERE NOT EXISTS (SELECT FROM event_conversations k WHERE k.session_no = a.session_no AND k.id = a.id);

-- name: EventsBounds :one
SELECT first_seq, last_seq FROM sessions WHERE id = @id;

-- name: EventsPositions :many
SELECT id, first_seq, last_seq FROM sessions WHERE id = ANY(@ids::text[]);

-- name: EventsDeltas :many
-- EventsDeltas reads text between two positions in pieces: a piece ends with the event with which
-- its data reaches max_bytes.
SELECT p.seq, coalesce(c.id, CASE p.conversation_no WHEN 1 THEN 'main' ELSE '' END)::text AS conversation_id, p.data
FROM (
    SELECT e.session_no, e.seq, e.conversation_no, e.data,
        sum(octet_length(e.data)) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM event_log e
    WHERE e.session_no = (SELECT s.no FROM sessions s WHERE s.id = @session_id::text)
        AND e.seq > @after_seq AND e.seq <= @through_seq AND e.type = 'text_delta'
    ORDER BY e.seq LIMIT @max_items
) p
LEFT JOIN LATERAL (SELECT k.id FROM event_conversations k WHERE p.conversation_no > 1 AND k.session_no = p.session_no AND k.no = p.conversation_no LIMIT 1) c ON true
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.seq;

-- name: EventsSetFirst :exec
UPDATE sessions SET first_seq = greatest(first_seq, @first_seq::bigint) WHERE id = @id;

-- name: EventsOfRunCount :one
SELECT count(*) FROM runs r
JOIN sessions s ON s.id = r.session_id
JOIN event_log e ON e.session_no = s.no AND e.run_no = r.no AND e.seq > r.began_seq
WHERE r.id = @run_id AND r.session_id = @session_id AND e.type = @type;

-- name: FileEventsOfRun :one
-- FileEventsOfRun sums up the file events of a run, and returns which errors it has reported.
SELECT
    count(*) FILTER (WHERE e.type = 'file') AS events,
    coalesce(sum(octet_length(e.data)) FILTER (WHERE e.type = 'file'), 0)::bigint AS bytes,
    coalesce(bool_or(e.type = 'error' AND starts_with(e.data, @truncated::text)), false)::boolean AS truncated,
    coalesce(bool_or(e.type = 'error' AND starts_with(e.data, @bounded::text)), false)::boolean AS bounded
FROM runs r
JOIN sessions s ON s.id = r.session_id
JOIN event_log e ON e.session_no = s.no AND e.run_no = r.no AND e.seq > r.began_seq
WHERE r.id = @run_id AND r.session_id = @session_id AND e.type IN ('file', 'error');
