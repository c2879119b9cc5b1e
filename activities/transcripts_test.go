package activities_test

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// TestTranscriptBeyondItsLimit checks that the session continues, and that its snapshots restore it
// completely. A restore without a snapshot reports the missing parts.
func TestTranscriptBeyondItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const limit = 64
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{Transcripts: transcript.Limits{FileBytes: limit}})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b.steps.Store = db

	ready := b.create(t)
	b.say(t, ready, "my name is Robin, and this is much longer than the limit of a transcript")
	b.say(t, ready, "the turn after that")
	positions, err := db.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, positions, 1)
	require.True(t, positions[0].Cut)
	require.EqualValues(t, limit, positions[0].Size)
	prompts, _, err := b.db.PromptList(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	err = b.revert(ready, prompts[1].ID)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "not stored whole")
	_, err = b.save(ready)
	require.NoError(t, err)
	b.terminate(t, ready)

	second, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{Kind: receipt.Full, Missing: []string{}}, *second.Receipt, "the snapshot has the whole file")
	require.Contains(t, b.say(t, second, "recall"), "my name is Robin")
	_, err = b.save(second)
	require.NoError(t, err)
	b.terminate(t, second)

	older, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, older.Receipt.Kind)
	_, err = b.save(older)
	require.NoError(t, err)
	b.terminate(t, older)
	damage(t, b.head(t).SnapshotID)
	older, err = b.restore(4)
	require.NoError(t, err)
	require.Equal(t, receipt.Partial, older.Receipt.Kind)
	require.Contains(t, strings.Join(older.Receipt.Unchecked, "\n"), "only its first 64 bytes are stored and were compared")
	_, err = b.save(older)
	require.NoError(t, err)
	b.terminate(t, older)

	third, err := do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 5, Fresh: true})
	require.NoError(t, err)
	require.Equal(t, receipt.Partial, third.Receipt.Kind)
	require.Contains(t, strings.Join(third.Receipt.Missing, "\n"), "the part after its first 64 bytes was not stored")
}

// TestOversizedTranscriptsAreNotReverted has more bytes than an adapter may receive.
func TestOversizedTranscriptsAreNotReverted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.say(t, ready, "the first thing")
	b.sql(t, "INSERT INTO transcript_positions (session_id, path, version, size, segments) VALUES ($1, '/other', 1, $2, 0)", b.id, int64(transcript.MaxRevertBytes))
	prompts, _, err := b.db.PromptList(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	err = b.revert(ready, prompts[0].ID)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "at most 134217728 can be reverted")
}

// TestFilesAreWrittenInPieces passes a file to put piece by piece.
func TestFilesAreWrittenInPieces(t *testing.T) {
	t.Parallel()
	const piece, pieces = 1 << 20, 64
	var given int
	content := func(yield func([]byte, error) bool) {
		data := bytes.Repeat([]byte("x"), piece)
		for given = 1; given <= pieces; given++ {
			if !yield(data, nil) {
				return
			}
		}
	}
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := runner.WritePut(writer, []runner.PutFile{{Path: "/f", Size: piece * pieces, Content: content}})
		written <- errors.Join(err, writer.Close())
	}()
	for read := 0; ; {
		m, err := runner.ReadMessage(reader)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if d, ok := m.(*runner.Data); ok {
			read += len(d.Bytes)
			require.LessOrEqual(t, len(d.Bytes), runner.MaxSegment)
		}
	}
	require.NoError(t, <-written)
	var short iter.Seq2[[]byte, error] = func(yield func([]byte, error) bool) { yield([]byte("abc"), nil) }
	require.ErrorContains(t, runner.WritePut(io.Discard, []runner.PutFile{{Path: "/f", Size: 4, Content: short}}), "does not have 4 bytes")
	require.ErrorContains(t, runner.WritePut(io.Discard, []runner.PutFile{{Path: "/f", Size: 2, Content: short}}), "does not have 2 bytes")
}
