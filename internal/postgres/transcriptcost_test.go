package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// query returns one value of the database.
func query[T any](ctx context.Context, t testing.TB, url, sql string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&value))
	return value
}

// storeSegments stores segments of ten bytes like an earlier release, without positions.
func storeSegments(ctx context.Context, t testing.TB, url, sessionID, path string, segments int) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `INSERT INTO transcripts (session_id, path, version, start, size, run_id, data)
		SELECT $1, $2, 1, n * 10, 10, 'run_1', '' FROM generate_series(0, $3::bigint - 1) n`, sessionID, path, segments)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "ANALYZE transcripts, transcript_positions")
	require.NoError(t, err)
}

// TestAppendReadsFewRows counts the rows that appends read in a session with thousands of segments and files.
func TestAppendReadsFewRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	storeSegments(b.ctx, t, b.url, b.id, "/t.jsonl", 5000)
	b.sql(t, `INSERT INTO transcripts (session_id, path, version, start, size, run_id, data)
		SELECT $1, '/other-' || n, 1, 0, 10, 'run_1', '' FROM generate_series(0, 499) n`, b.id)
	b.sql(t, "ANALYZE transcripts, transcript_positions")
	// A backend reports its statistics when it ends.
	read := func() int64 {
		t.Helper()
		require.Eventually(t, func() bool {
			return query[int](b.ctx, t, b.url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()") == 0
		}, waitLimit, waitLimit/1000)
		return query[int64](b.ctx, t, b.url, `SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint FROM pg_stat_user_tables
			WHERE relname LIKE 'transcript%'`)
	}
	b.Close()
	before := read()
	db := postgrestest.Open(t, b.url)
	const appends = 15 // one more would merge
	for i := range appends {
		require.NoError(t, db.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, int64(50_000+i), "x")}))
	}
	db.Close()
	require.LessOrEqual(t, read()-before, int64(6*appends))
}

// TestSegmentsAreMerged appends pieces of all sizes and compares rows, position and content.
func TestSegmentsAreMerged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := rand.New(rand.NewPCG(1, 2))
	var file []byte
	for i := range 700 {
		size := 1 + random.IntN(300)
		switch {
		case i%97 == 0:
			size = random.IntN(1_200_000)
		case i%13 == 0:
			size = random.IntN(30_000)
		}
		piece := bytes.Repeat([]byte{byte('a' + i%26), byte(i), '\n'}, size/3+1)
		require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, int64(len(file)), string(piece))}))
		file = append(file, piece...)
	}
	got, ok := b.transcript(t)
	require.True(t, ok)
	require.True(t, bytes.Equal(file, got.Data))
	rows := query[int](b.ctx, t, b.url, "SELECT count(*) FROM transcripts")
	require.LessOrEqual(t, rows, 2*len(file)>>20+40)
	require.LessOrEqual(t, query[int](b.ctx, t, b.url, "SELECT max(size) FROM transcripts"), 1<<20)
	require.Equal(t, rows, query[int](b.ctx, t, b.url, "SELECT segments FROM transcript_positions"))
	require.Equal(t, len(file), query[int](b.ctx, t, b.url, "SELECT bytes FROM transcript_totals"))
}

// TestUncommittedMergeChangesNothing refuses the last segment of an append after the others
// were merged.
func TestUncommittedMergeChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var segments []transcript.Segment
	for i := range 15 {
		segments = append(segments, b.segment(1, int64(i), string(rune('a'+i))))
	}
	require.NoError(t, b.TranscriptAppend(b.ctx, segments))
	const rows = "SELECT string_agg(start || '+' || size, ' ' ORDER BY start) FROM transcripts"
	before := query[string](b.ctx, t, b.url, rows)
	err := b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, 15, "p"), b.segment(1, 99, "gap")})
	requireCode(t, failure.IllegalState, err)
	require.Equal(t, before, query[string](b.ctx, t, b.url, rows))
	require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, 15, "p")}))
	require.Equal(t, "0+16", query[string](b.ctx, t, b.url, rows))
	file, _ := b.transcript(t)
	require.Equal(t, "abcdefghijklmnop", string(file.Data))
}

// TestTranscriptIsReadWhileItIsMerged merges the rows of a file between two pieces of a read, then
// replaces the file.
func TestTranscriptIsReadWhileItIsMerged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(version, offset int64, data string) {
		t.Helper()
		require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(version, offset, data)}))
	}
	for i := range 10 {
		add(1, int64(10*i), strings.Repeat(string(rune('a'+i)), 10))
	}
	positions, err := b.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	var read []string
	for piece, err := range b.TranscriptContent(b.ctx, b.id, positions[0]) {
		require.NoError(t, err)
		read = append(read, string(piece))
		if len(read) == 3 {
			for i := range 6 {
				add(1, int64(100+i), "x")
			}
		}
	}
	require.Equal(t, []string{"aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "ddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhiiiiiiiiiijjjjjjjjjj"}, read)
	add(1, 106, "y")
	for piece, err := range b.TranscriptContent(b.ctx, b.id, transcript.Position{Path: "/t.jsonl", Version: 1, Size: 107}) {
		if err != nil {
			requireCode(t, failure.IllegalState, err)
			break
		}
		require.Len(t, piece, 106)
		add(2, 0, "new")
	}
}

// TestRowsOfPreviousReleaseAreCounted appends like two releases during an upgrade.
func TestRowsOfPreviousReleaseAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	storeSegments(b.ctx, t, b.url, b.id, "/old", 3)
	position := func() transcript.Position {
		t.Helper()
		positions, err := b.TranscriptPositions(b.ctx, b.id)
		require.NoError(t, err)
		require.Len(t, positions, 1)
		return positions[0]
	}
	require.Equal(t, transcript.Position{Path: "/old", Version: 1, Size: 30}, position())
	segment := b.segment(1, 30, "new")
	segment.Path = "/old"
	require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{segment}))
	b.sql(t, "INSERT INTO transcripts (session_id, path, version, start, size, run_id, data) SELECT session_id, path, 1, 33, 7, '', '' FROM transcripts LIMIT 1")
	require.EqualValues(t, 40, position().Size)
	require.Equal(t, 5, query[int](b.ctx, t, b.url, "SELECT segments FROM transcript_positions"))
	b.sql(t, "INSERT INTO transcripts (session_id, path, version, start, size, run_id, data) SELECT session_id, path, 2, 0, 4, '', '' FROM transcripts LIMIT 1")
	require.Equal(t, transcript.Position{Path: "/old", Version: 2, Size: 4}, position())
	require.Equal(t, 4, query[int](b.ctx, t, b.url, "SELECT bytes FROM transcript_totals"))
	require.Equal(t, 1, query[int](b.ctx, t, b.url, "SELECT files FROM transcript_totals"))
}

// TestStoredTranscriptsGetTheirPositions runs the migration on rows of an earlier release, with
// several versions.
func TestStoredTranscriptsGetTheirPositions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	storeSegments(b.ctx, t, b.url, b.id, "/a", 40)
	storeSegments(b.ctx, t, b.url, b.id, "/b", 7)
	storeSegments(b.ctx, t, b.url, b.session(t), "/a", 2)
	b.sql(t, "INSERT INTO transcripts (session_id, path, version, start, size, run_id, data) SELECT session_id, path, 2, 0, 4, '', '' FROM transcripts WHERE path = '/b' LIMIT 1")
	const rows = "SELECT (SELECT string_agg(p::text, ' ' ORDER BY session_id, path) FROM transcript_positions p) || (SELECT string_agg(t::text, ' ' ORDER BY session_id) FROM transcript_totals t)"
	counted := query[string](b.ctx, t, b.url, rows)
	b.sql(t, "TRUNCATE transcript_positions, transcript_totals")
	migration, err := os.ReadFile("migrations/00050_transcript_positions.sql")
	require.NoError(t, err)
	_, statements, found := strings.Cut(string(migration), "EXECUTE FUNCTION transcript_count();")
	require.True(t, found)
	statements, _, _ = strings.Cut(statements, "-- +goose Down")
	for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(statements), ";"), ";") {
		b.sql(t, statement)
	}
	require.Equal(t, counted, query[string](b.ctx, t, b.url, rows))
}

// TestTranscriptsAreBounded stores more than each limit allows.
func TestTranscriptsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{Transcripts: transcript.Limits{FileBytes: 100, SessionBytes: 250, Files: 4}})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	add := func(path string, version, offset int64, bytes int) {
		t.Helper()
		segment := b.segment(version, offset, strings.Repeat("x", bytes))
		segment.Path = path
		require.NoError(t, db.TranscriptAppend(b.ctx, []transcript.Segment{segment}))
	}
	stored := func() (out []string) {
		t.Helper()
		positions, err := db.TranscriptPositions(b.ctx, b.id)
		require.NoError(t, err)
		for _, p := range positions {
			out = append(out, fmt.Sprintf("%s %d %d %v", p.Path, p.Version, p.Size, p.Cut))
		}
		return out
	}
	add("/a", 1, 0, 90)
	add("/a", 1, 90, 90)
	add("/a", 1, 180, 90) // no gap: the missing bytes exceeded the limit
	add("/a", 1, 100, 10)
	require.Equal(t, []string{"/a 1 100 true"}, stored())
	add("/b", 1, 0, 100)
	add("/c", 1, 0, 100)
	require.Equal(t, []string{"/a 1 100 true", "/b 1 100 false", "/c 1 50 true"}, stored())
	add("/d", 1, 0, 0)
	add("/e", 1, 0, 10)
	add("/f", 1, 0, 10)
	add(strings.Repeat("p", transcript.MaxPath+1), 1, 0, 10)
	add("/not-\xff", 1, 0, 10)
	require.Equal(t, []string{"/a 1 100 true", "/b 1 100 false", "/c 1 50 true", "/d 1 0 false"}, stored())
	// A file that the agent rewrites with less content frees space.
	add("/a", 2, 0, 20)
	add("/d", 1, 0, 30)
	require.Equal(t, []string{"/a 2 20 false", "/b 1 100 false", "/c 1 50 true", "/d 1 30 false"}, stored())
	files, err := postgrestest.Transcripts(b.ctx, db, b.id)
	require.NoError(t, err)
	require.Len(t, files[1].Data, 100)
	reached, err := db.TranscriptLimitsReached(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []transcript.Limit{transcript.LimitFile, transcript.LimitSession, transcript.LimitFiles, transcript.LimitPath}, reached)
	var reported []string
	for _, e := range b.events(t) {
		if e.Type == string(conversation.EventError) {
			require.Contains(t, string(e.Data), transcript.CodeIncomplete)
			reported = append(reported, string(e.Data))
		}
	}
	require.Len(t, reported, 4, "each limit once")
	require.Contains(t, reported[0], "/a: only the first 100 bytes")
}

// TestTurnReplacesBoundedAmountOfTranscripts stores new versions of a file, as a program that
// impersonates the runner could. Each version costs rows and bytes even if the file is small.
func TestTurnReplacesBoundedAmountOfTranscripts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{Transcripts: transcript.Limits{TurnReplaced: 5 * transcript.MinReplaced}})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	add := func(run, path string, version, offset int64, bytes int) {
		t.Helper()
		segment := b.segment(version, offset, strings.Repeat("x", bytes))
		segment.RunID, segment.Path = run, path
		require.NoError(t, db.TranscriptAppend(b.ctx, []transcript.Segment{segment}))
	}
	stored := func() (out []string) {
		t.Helper()
		positions, err := db.TranscriptPositions(b.ctx, b.id)
		require.NoError(t, err)
		for _, p := range positions {
			out = append(out, fmt.Sprintf("%s %d %d %v", p.Path, p.Version, p.Size, p.Cut))
		}
		return out
	}
	for version := range int64(10) {
		add("run_1", "/a", version+1, 0, 5)
	}
	require.Equal(t, []string{"/a 6 5 false"}, stored())
	add("run_1", "/a", 10, 5, 5) // no gap: the version is not stored
	add("run_1", "/a", 6, 5, 5)
	add("run_1", "/b", 1, 0, 4*transcript.MinReplaced)
	require.Equal(t, []string{"/a 6 10 false", "/b 1 65536 false"}, stored())
	// The next turn begins with a new link, which sends the newest versions from the start.
	add("run_2", "/a", 10, 0, 10)
	add("run_2", "/b", 2, 0, 10)
	add("run_2", "/a", 11, 0, 11)
	require.Equal(t, []string{"/a 10 10 false", "/b 2 10 false"}, stored())
	add("", "/a", 11, 0, 11) // a seal
	require.Equal(t, []string{"/a 11 11 false", "/b 2 10 false"}, stored())
	for range 10 { // replacements by the session itself are not bounded
		require.NoError(t, db.SessionRevert(b.ctx, b.id, b.generation(t), nil, []transcript.File{{Path: "/a", Data: []byte("reverted")}}))
	}
	require.Equal(t, []string{"/a 21 8 false", "/b 12 0 false"}, stored())
	var reported []string
	for _, e := range b.events(t) {
		if e.Type == string(conversation.EventError) {
			reported = append(reported, string(e.Data))
		}
	}
	require.Len(t, reported, 1)
	require.Contains(t, reported[0], "/a: a turn can replace 81920 bytes of transcripts")
}

// TestGapsInTranscriptsAreCountedByTurn also counts in a session without transcripts.
func TestGapsInTranscriptsAreCountedByTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	count := func(run string, want int) {
		t.Helper()
		got, err := b.TranscriptGap(b.ctx, b.id, run)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	count("run_1", 1)
	require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, 0, "abc")}))
	count("run_1", 2)
	count("run_2", 1)
	count("", 1)
	count("", 2)
	count("run_2", 1)
	require.Equal(t, "1 3", query[string](b.ctx, t, b.url, "SELECT files || ' ' || bytes FROM transcript_totals"))
	_, err := b.TranscriptGap(b.ctx, "ses_nobody", "run_1")
	requireCode(t, failure.NoSession, err)
}

// TestLargeTranscriptIsReadInPieces measures the memory use of reading.
func TestLargeTranscriptIsReadInPieces(t *testing.T) { //nolint:paralleltest // measures the heap
	b := setup(t)
	const size = 48 << 20
	piece := make([]byte, 1<<20)
	for offset := 0; offset < size; offset += len(piece) {
		for i := range piece {
			piece[i] = byte(rand.Uint32())
		}
		require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, int64(offset), string(piece))}))
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, total := heap(), uint64(0), 0
	for piece, err := range b.TranscriptContent(b.ctx, b.id, transcript.Position{Path: "/t.jsonl", Version: 1, Size: size}) {
		require.NoError(t, err)
		require.LessOrEqual(t, len(piece), 1<<20)
		if total += len(piece); total%(8<<20) == 0 {
			most = max(most, heap())
		}
	}
	require.Equal(t, size, total)
	require.Less(t, int64(most)-int64(before), int64(16<<20))
}

// BenchmarkTranscriptAppend appends lines to a transcript that has some segments already.
func BenchmarkTranscriptAppend(b *testing.B) {
	for _, segments := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("segments=%d", segments), func(b *testing.B) {
			url := postgrestest.URL(b)
			db := postgrestest.Open(b, url)
			s, _, err := db.SessionCreate(b.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
			require.NoError(b, err)
			storeSegments(b.Context(), b, url, s.ID, "/t.jsonl", segments)
			line := bytes.Repeat([]byte("x"), 500)
			at := int64(10 * segments)
			for b.Loop() {
				segment := transcript.Segment{SessionID: s.ID, RunID: "run_1", Path: "/t.jsonl", Version: 1, Offset: at, Data: line}
				require.NoError(b, db.TranscriptAppend(b.Context(), []transcript.Segment{segment}))
				at += int64(len(line))
			}
		})
	}
}
