-- name: SessionCounts :many
-- SessionCounts returns the number of sessions by status and agent.
SELECT status, agent, sum(n)::bigint AS n FROM session_counts GROUP BY status, agent HAVING sum(n) <> 0;

-- name: SessionCountsFold :execrows
-- SessionCountsFold sums up differences, unless there are few. Concurrent calls process different
-- rows.
WITH taken AS (
    DELETE FROM session_counts WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM session_counts WHERE (SELECT count(*) FROM session_counts) > @more_than::bigint FOR UPDATE SKIP LOCKED
    )) RETURNING status, agent, n
)
INSERT INTO session_counts (status, agent, n) SELECT status, agent, sum(n)::bigint FROM taken GROUP BY status, agent HAVING sum(n) <> 0;

-- name: QuestionsOpen :one
SELECT count(*) FROM questions WHERE status = 'open';

-- name: PromptsUnfinished :one
-- PromptsUnfinished counts the queued and processing prompts, and returns for how long the oldest
-- queued one has waited whose session can run it and is not processing another.
SELECT count(*) FILTER (WHERE p.status = 'queued')::bigint AS queued, count(*) FILTER (WHERE p.status = 'processing')::bigint AS processing,
    coalesce(extract(epoch FROM statement_timestamp() - min(p.created_at) FILTER (
        WHERE p.status = 'queued' AND s.status NOT IN ('error', 'terminated') AND s.held_at IS NULL
            AND NOT EXISTS (SELECT FROM prompts o WHERE o.session_id = p.session_id AND o.status = 'processing')
    )), 0)::double precision AS oldest_seconds
FROM prompts p JOIN sessions s ON s.id = p.session_id
WHERE p.status IN ('queued', 'processing');
