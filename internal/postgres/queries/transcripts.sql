-- name: TranscriptPositions :many
-- TranscriptPositions walks the index from path to path and reads the last segment of
-- each: what it costs does not grow with the age of the session.
WITH RECURSIVE paths AS (
    (SELECT f.path FROM transcripts f WHERE f.session_id = @session_id ORDER BY f.path LIMIT 1)
    UNION ALL
    SELECT (SELECT n.path FROM transcripts n WHERE n.session_id = @session_id AND n.path > p.path ORDER BY n.path LIMIT 1)
    FROM paths p WHERE p.path IS NOT NULL
)
SELECT newest.path, newest.version, (newest.start + newest.size)::bigint AS size
FROM paths CROSS JOIN LATERAL (
    SELECT t.path, t.version, t.start, t.size FROM transcripts t
    WHERE t.session_id = @session_id AND t.path = paths.path ORDER BY t.version DESC, t.start DESC LIMIT 1
) newest
ORDER BY newest.path;

-- name: TranscriptInsert :exec
-- TranscriptInsert meets a segment at the same place only where that one is empty.
INSERT INTO transcripts (session_id, path, version, start, size, run_id, data)
VALUES (@session_id, @path, @version, @start, @size, @run_id, @data)
ON CONFLICT (session_id, path, version, start) DO UPDATE SET size = excluded.size, run_id = excluded.run_id, data = excluded.data;

-- name: TranscriptDeleteOlder :exec
DELETE FROM transcripts WHERE session_id = @session_id AND path = @path AND version < @version;

-- name: TranscriptSegments :many
SELECT path, version, data FROM transcripts WHERE session_id = @session_id ORDER BY path, version, start;

-- name: TranscriptsSessionAfter :one
SELECT session_id FROM transcripts WHERE session_id > @after::text ORDER BY session_id LIMIT 1;

-- name: TranscriptsAfter :many
SELECT path, version, start, data FROM transcripts
WHERE session_id = @session_id AND (path, version, start) > (@path::text, @version::bigint, @start::bigint)
ORDER BY path, version, start LIMIT @max_items;

-- name: TranscriptReseal :exec
UPDATE transcripts SET data = @data WHERE session_id = @session_id AND path = @path AND version = @version AND start = @start;
