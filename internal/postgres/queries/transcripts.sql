-- name: TranscriptPositions :many
SELECT path, version, max(start + size)::bigint AS size FROM transcripts
WHERE session_id = @session_id GROUP BY path, version ORDER BY path, version;

-- name: TranscriptInsert :exec
-- TranscriptInsert meets a segment at the same place only where that one is empty.
INSERT INTO transcripts (session_id, path, version, start, size, run_id, data)
VALUES (@session_id, @path, @version, @start, @size, @run_id, @data)
ON CONFLICT (session_id, path, version, start) DO UPDATE SET size = excluded.size, run_id = excluded.run_id, data = excluded.data;

-- name: TranscriptDeleteOlder :exec
DELETE FROM transcripts WHERE session_id = @session_id AND path = @path AND version < @version;

-- name: TranscriptSegments :many
SELECT path, version, data FROM transcripts WHERE session_id = @session_id ORDER BY path, version, start;
