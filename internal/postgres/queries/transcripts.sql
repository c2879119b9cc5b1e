-- name: TranscriptPositions :many
SELECT path, version, size, cut FROM transcript_positions WHERE session_id = @session_id ORDER BY path;

-- name: TranscriptPositionsOf :many
SELECT path, version, size, segments, loose, cut FROM transcript_positions
WHERE session_id = @session_id AND path = ANY(@paths::text[]);

-- name: TranscriptTotals :one
SELECT files, bytes, exceeded, turn, replaced, gaps FROM transcript_totals WHERE session_id = @session_id;

-- name: TranscriptPositionSet :exec
INSERT INTO transcript_positions (session_id, path, version, size, segments, loose, cut)
VALUES (@session_id, @path, @version, @size, @segments, @loose, @cut)
ON CONFLICT (session_id, path) DO UPDATE SET
    version = excluded.version, size = excluded.size, segments = excluded.segments, loose = excluded.loose, cut = excluded.cut;

-- name: TranscriptTotalsSet :exec
INSERT INTO transcript_totals (session_id, files, bytes, exceeded, turn, replaced, gaps)
VALUES (@session_id, @files, @bytes, @exceeded, @turn, @replaced, @gaps)
ON CONFLICT (session_id) DO UPDATE SET
    files = excluded.files, bytes = excluded.bytes, exceeded = excluded.exceeded,
    turn = excluded.turn, replaced = excluded.replaced, gaps = excluded.gaps;

-- name: TranscriptGapCount :one
-- TranscriptGapCount counts a segment that left a gap, and returns the number of such segments in
-- the same turn.
INSERT INTO transcript_totals AS t (session_id, files, bytes, turn, gaps) VALUES (@session_id, 0, 0, @turn, 1)
ON CONFLICT (session_id) DO UPDATE SET
    gaps = CASE WHEN t.turn = excluded.turn THEN t.gaps + 1 ELSE 1 END,
    replaced = CASE WHEN t.turn = excluded.turn THEN t.replaced ELSE 0 END,
    turn = excluded.turn
RETURNING gaps;

-- name: TranscriptInsert :exec
-- TranscriptInsert conflicts with a segment at the same place only if that segment is empty, as
-- earlier releases wrote for empty files.
INSERT INTO transcripts (session_id, path, version, start, size, run_id, data, counted)
VALUES (@session_id, @path, @version, @start, @size, @run_id, @data, true)
ON CONFLICT (session_id, path, version, start) DO UPDATE SET
    size = excluded.size, run_id = excluded.run_id, data = excluded.data, counted = true;

-- name: TranscriptDeleteOlder :exec
DELETE FROM transcripts WHERE session_id = @session_id AND path = @path AND version < @version;

-- name: TranscriptTail :many
-- TranscriptTail returns the newest segments of a file without their data, newest first.
SELECT start, size FROM transcripts
WHERE session_id = @session_id AND path = @path AND version = @version ORDER BY start DESC LIMIT @max_items;

-- name: TranscriptSegmentAt :one
-- TranscriptSegmentAt returns the segment that contains a position of a file.
SELECT start, run_id, data FROM transcripts
WHERE session_id = @session_id AND path = @path AND version = @version AND start <= @position
ORDER BY start DESC LIMIT 1;

-- name: TranscriptDeleteSegments :exec
DELETE FROM transcripts
WHERE session_id = @session_id AND path = @path AND version = @version AND start BETWEEN @first::bigint AND @last::bigint;

-- name: TranscriptsSessionAfter :one
SELECT session_id FROM transcripts WHERE session_id > @after::text ORDER BY session_id LIMIT 1;

-- name: TranscriptsAfter :many
SELECT path, version, start, data FROM transcripts
WHERE session_id = @session_id AND (path, version, start) > (@path::text, @version::bigint, @start::bigint)
ORDER BY path, version, start LIMIT @max_items;

-- name: TranscriptReseal :exec
UPDATE transcripts SET data = @data WHERE session_id = @session_id AND path = @path AND version = @version AND start = @start;
