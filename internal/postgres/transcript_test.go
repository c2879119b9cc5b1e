package postgres_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func (b *harness) segment(version, offset int64, data string) transcript.Segment {
	return transcript.Segment{SessionID: b.id, RunID: "run_1", Path: "/t.jsonl", Version: version, Offset: offset, Data: []byte(data)}
}

func (b *harness) transcript(t require.TestingT) (transcript.File, bool) {
	files, err := postgrestest.Transcripts(b.ctx, b.DB, b.id)
	require.NoError(t, err)
	if len(files) == 0 {
		return transcript.File{}, false
	}
	require.Len(t, files, 1)
	positions, err := b.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []transcript.Position{{Path: files[0].Path, Version: files[0].Version, Size: int64(len(files[0].Data))}}, positions)
	return files[0], true
}

func TestTranscriptGrowsBySegments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(segments ...transcript.Segment) error { return b.TranscriptAppend(b.ctx, segments) }
	require.NoError(t, add(b.segment(1, 0, "")), "a file may be empty")
	require.NoError(t, add(b.segment(1, 0, "abc"), b.segment(1, 3, "def")))
	require.NoError(t, add(b.segment(1, 0, "abc")))
	require.NoError(t, add(b.segment(1, 4, "efgh")), "what overlaps is cut")
	file, _ := b.transcript(t)
	require.Equal(t, "abcdefgh", string(file.Data))
	requireCode(t, failure.IllegalState, add(b.segment(1, 8, "ij"), b.segment(1, 11, "l")))
	file, _ = b.transcript(t)
	require.Equal(t, "abcdefgh", string(file.Data), "together or not at all")
	require.NoError(t, add(b.segment(2, 0, "new"), b.segment(1, 8, "old"), b.segment(2, 3, "er")))
	file, _ = b.transcript(t)
	require.Equal(t, "newer", string(file.Data))
	requireCode(t, failure.IllegalState, add(b.segment(3, 1, "x")))
	require.NoError(t, add(b.segment(3, 0, "")))
	file, _ = b.transcript(t)
	require.Empty(t, file.Data)
	require.EqualValues(t, 3, file.Version)

	s := b.segment(1, 0, "x")
	s.SessionID = "ses_nobody"
	requireCode(t, failure.NoSession, add(s))
	_, err := postgrestest.Transcripts(b.ctx, b.DB, "ses_nobody")
	requireCode(t, failure.NoSession, err)
	requireCode(t, failure.Invalid, add(b.segment(4, -1, "xx")))
}

// TestRunEndStoresTranscripts checks that segments and the outcome of a run are stored together or
// not at all.
func TestRunEndStoresTranscripts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	prompt := b.submit(t, "hello")
	runID := session.NewID(session.RunPrefix)
	_, err := b.RunBegin(b.ctx, b.id, prompt, runID, 1)
	require.NoError(t, err)
	_, err = b.RunAttach(b.ctx, runID, "token", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	end := func(token string, segments ...transcript.Segment) error {
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: token, Outcome: session.OutcomeCompleted, Segments: segments})
		return err
	}
	requireCode(t, failure.IllegalState, end("token", b.segment(1, 0, "abc"), b.segment(1, 4, "gap")))
	requireCode(t, failure.IllegalState, end("another", b.segment(1, 0, "abc")))
	_, stored := b.transcript(t)
	require.False(t, stored)
	claim, err := b.RunGet(b.ctx, runID)
	require.NoError(t, err)
	require.Zero(t, claim.Outcome)
	require.NoError(t, end("token", b.segment(1, 0, "abc")))
	require.NoError(t, end("token", b.segment(1, 0, "abc"), b.segment(1, 3, "def")), "the response was lost")
	file, _ := b.transcript(t)
	require.Equal(t, "abcdef", string(file.Data))
	claim, err = b.RunGet(b.ctx, runID)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, claim.Outcome)
}

// TestTranscriptMatchesFile resends random pieces of a growing file, like attempts that do not know
// the stored position.
func TestTranscriptMatchesFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(t *rapid.T) {
		s, _, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{})
		require.NoError(t, err)
		b := &harness{DB: b.DB, ctx: b.ctx, id: s.ID}
		var file []byte
		for range rapid.IntRange(1, 6).Draw(t, "appends") {
			from := rapid.IntRange(0, len(file)).Draw(t, "resent from")
			file = append(file, rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "data")...)
			require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{b.segment(1, int64(from), string(file[from:]))}))
		}
		got, ok := b.transcript(t)
		require.True(t, ok)
		require.True(t, bytes.Equal(file, got.Data))
	})
}
