-- name: EventsInsert :exec
-- EventsInsert is the one way into the log. Data goes over as text: json keeps it
-- as it is, the escape \u0000 included. A frame below zero means none.
INSERT INTO events (session_id, seq, type, conversation_id, run_id, frame, n, at, data, size)
SELECT a.session_id, a.seq, a.type, a.conversation_id, a.run_id,
    nullif(a.frame, -1), CASE WHEN a.frame >= 0 THEN a.n END, a.at, a.data::json, octet_length(a.data)
FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@seqs::bigint[]) AS seq, unnest(@types::text[]) AS type,
    unnest(@conversation_ids::text[]) AS conversation_id, unnest(@run_ids::text[]) AS run_id, unnest(@frames::bigint[]) AS frame,
    unnest(@ns::integer[]) AS n, unnest(@ats::timestamptz[]) AS at, unnest(@datas::text[]) AS data) a;

-- name: EventsPage :many
-- EventsPage ends with the event that brings its data to max_bytes or more.
SELECT p.seq, p.type, p.conversation_id, p.run_id, p.at, p.data
FROM (
    SELECT e.seq, e.type, e.conversation_id, e.run_id, e.at, e.data,
        sum(coalesce(e.size, octet_length(e.data::text))) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM events e
    WHERE e.session_id = @session_id AND e.seq > @after_seq ORDER BY e.seq LIMIT @max_items
) p
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.seq;

-- name: EventsBounds :one
SELECT first_seq, last_seq FROM sessions WHERE id = @id;

-- name: EventsPositions :many
SELECT id, last_seq FROM sessions WHERE id = ANY(@ids::text[]);

-- name: EventsDeltas :many
-- EventsDeltas reads text between two positions, a piece at a time: it ends with the event that brings its
-- data to max_bytes or more.
SELECT p.seq, p.conversation_id, p.data
FROM (
    SELECT e.seq, e.conversation_id, e.data,
        sum(coalesce(e.size, octet_length(e.data::text))) OVER (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM events e
    WHERE e.session_id = @session_id AND e.seq > @after_seq AND e.seq <= @through_seq AND e.type = 'text_delta'
    ORDER BY e.seq LIMIT @max_items
) p
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY p.seq;

-- name: EventsPrune :exec
-- EventsPrune deletes the oldest events up to and with a position; readers behind
-- it are told by first_seq.
DELETE FROM events WHERE session_id = @session_id AND seq <= @through;

-- name: EventsSetFirst :exec
UPDATE sessions SET first_seq = greatest(first_seq, @first_seq::bigint) WHERE id = @id;

-- name: EventsOfRunCount :one
SELECT count(*) FROM events e
WHERE e.session_id = @session_id AND e.run_id = @run_id AND e.type = @type
    AND e.seq > coalesce((SELECT r.began_seq FROM runs r WHERE r.id = @run_id), 0);
