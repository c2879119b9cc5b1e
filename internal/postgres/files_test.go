package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// filing returns a session with a run, and a batch of its worker.
func filing(t *testing.T) (b *harness, batch workspacefile.Batch) {
	t.Helper()
	b = setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	return b, workspacefile.Batch{SessionID: b.id, Generation: b.generation(t), RunID: run, Token: "t1", Lineage: "l1"}
}

func written(seq int64, path, text string) workspacefile.Change {
	c := workspacefile.Change{Seq: seq, Kind: workspacefile.Modified}
	c.Info = workspacefile.Info{
		Path: path, Size: int64(len(text)), SHA256: "sum of " + text, Mode: 0o644, ModifiedAt: time.Unix(1000, 5000).UTC(),
	}
	c.Data = []byte(text)
	return c
}

func removed(seq int64, path string) workspacefile.Change {
	c := workspacefile.Change{Seq: seq, Kind: workspacefile.Deleted}
	c.Path = path
	return c
}

// fileEvents returns the file events of the session, as "CHANGE PATH SIZE".
func (b *harness) fileEvents(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, e := range b.events(t) {
		if e.Type == "file" {
			var d struct {
				Path, Change string
				Size         int64
			}
			require.NoError(t, json.Unmarshal(e.Data, &d))
			out = append(out, fmt.Sprintf("%s %s %d", d.Change, d.Path, d.Size))
		}
	}
	return out
}

func (b *harness) paths(t *testing.T, prefix string) []string {
	t.Helper()
	items, _, err := b.FileList(b.ctx, b.id, prefix, 200, "")
	require.NoError(t, err)
	var out []string
	for _, f := range items {
		out = append(out, f.Path)
	}
	return out
}

func TestFilesAreStoredAndReportedOnce(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	initial := written(1, "initial", "i")
	initial.Initial = true
	large := written(3, "dir/large", "")
	large.Size, large.Unsaved, large.Data = 5<<20, workspacefile.UnsavedTooLarge, nil
	batch.Changes = []workspacefile.Change{initial, written(2, "a", "one"), large, written(4, "empty", "")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	position := b.position(t)
	require.NoError(t, b.FilesAppend(b.ctx, batch), "as after a lost answer")
	require.Equal(t, position, b.position(t))
	want := []string{"created a 3", "created dir/large 5242880", "created empty 0"}
	require.Equal(t, want, b.fileEvents(t), "initial files are not events")
	require.Equal(t, []string{"a", "dir/large", "empty", "initial"}, b.paths(t, ""))
	require.Equal(t, []string{"dir/large"}, b.paths(t, "dir/"))

	f, err := b.FileGet(b.ctx, b.id, "a")
	require.NoError(t, err)
	require.Equal(t, written(2, "a", "one").Content, f)
	f, err = b.FileGet(b.ctx, b.id, "empty")
	require.NoError(t, err)
	require.True(t, f.Saved())
	require.Empty(t, f.Data)
	f, err = b.FileGet(b.ctx, b.id, "dir/large")
	require.NoError(t, err)
	require.Equal(t, workspacefile.UnsavedTooLarge, f.Unsaved)
	_, err = b.FileGet(b.ctx, b.id, "A")
	require.Equal(t, failure.NoFile, failure.CodeOf(err))

	// The store decides which changes are new: a file whose creation was reported but lost is
	// reported as modified; a file that was created and deleted between two batches is not
	// reported.
	batch.Changes = []workspacefile.Change{
		written(4, "empty", "not again"), written(5, "new", "1"), written(6, "a", "two!"), removed(7, "never"), removed(8, "initial"),
		removed(9, "new"), written(10, "new", "22"),
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.Equal(t, append(want, "created new 1", "modified a 4", "deleted initial 0", "deleted new 0", "created new 2"), b.fileEvents(t))
	_, err = b.FileGet(b.ctx, b.id, "initial")
	require.Equal(t, failure.NoFile, failure.CodeOf(err))
	require.ErrorContains(t, err, "was deleted at")
	f, err = b.FileGet(b.ctx, b.id, "new")
	require.NoError(t, err)
	require.Equal(t, "22", string(f.Data))
	p, err := b.FilesPosition(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, workspacefile.Position{Session: b.id, Lineage: "l1", Seq: 10}, p)
	known, err := b.FilesKnown(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, known, 4)
	require.Equal(t, workspacefile.Known{Path: "a", Size: 4, SHA256: "sum of two!", Mode: 0o644}, known[0])

	// A new lineage counts from the beginning.
	batch.Lineage, batch.Base = "l2", "c0ffee"
	batch.Changes = []workspacefile.Change{removed(1, "new")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.Equal(t, []string{"a", "dir/large", "empty"}, b.paths(t, ""))
	start, err := b.RunAttach(b.ctx, batch.RunID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, workspacefile.Position{Session: b.id, Lineage: "l2", Seq: 1, Base: "c0ffee"}, start.Files)
}

// TestEventsOfFilesAreBoundedByTheirBudget checks that exactly the committed events are charged.
func TestEventsOfFilesAreBoundedByTheirBudget(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	logged, err := b.FilesLogged(b.ctx, b.id, batch.RunID)
	require.NoError(t, err)
	require.Equal(t, workspacefile.Logged{}, logged)
	batch.Budget = &workspacefile.Budget{Bytes: 1000, Events: 2}
	batch.Changes = []workspacefile.Change{written(1, "a", "1")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.EqualValues(t, 1, batch.Budget.Events)
	used := 1000 - batch.Budget.Bytes
	require.NotZero(t, used)
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.EqualValues(t, 1, batch.Budget.Events, "stored files cost nothing")

	batch.Changes, batch.BoundedSeq = []workspacefile.Change{written(2, "b", "1"), written(3, "c", "1"), written(4, "d", "1")}, 5
	fenced := batch
	fenced.Token = "other"
	require.ErrorIs(t, b.FilesAppend(b.ctx, fenced), eventlog.ErrFenced)
	require.Equal(t, workspacefile.Budget{Bytes: 1000 - used, Events: 1}, *batch.Budget)
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.Equal(t, workspacefile.Budget{Bytes: 1000 - 2*used, Full: true, TooLarge: true}, *batch.Budget)
	batch.Changes, batch.BoundedSeq = []workspacefile.Change{written(6, "e", "1")}, 7
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.Equal(t, []string{"created a 1", "created b 1"}, b.fileEvents(t))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, b.paths(t, ""))
	var errors []string
	for _, e := range b.events(t) {
		if e.Type == "error" {
			errors = append(errors, string(e.Data))
		}
	}
	require.Len(t, errors, 2)
	require.Contains(t, errors[0], conversation.CodeTurnTruncated)
	require.Contains(t, errors[1], "workspace_too_large")
	logged, err = b.FilesLogged(b.ctx, b.id, batch.RunID)
	require.NoError(t, err)
	require.Equal(t, workspacefile.Logged{Bytes: 2 * used, Events: 2, Full: true, TooLarge: true}, logged)
}

func TestFilesOfOlderAttemptAreNotStored(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.Changes = []workspacefile.Change{written(1, "a", "1")}
	refused := func(what string, batch workspacefile.Batch) {
		t.Helper()
		require.ErrorIs(t, b.FilesAppend(b.ctx, batch), eventlog.ErrFenced, what)
	}
	other := batch
	other.Token = "older"
	refused("token", other)
	other.Token = ""
	refused("no token", other)
	other = batch
	other.SessionID = b.session(t)
	other.Generation = 9
	require.Equal(t, failure.NoRun, failure.CodeOf(b.FilesAppend(b.ctx, other)))

	require.NoError(t, b.FilesAppend(b.ctx, batch))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: batch.RunID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	batch.Changes = []workspacefile.Change{written(2, "a", "2")}
	refused("the run has ended", batch)
	batch.RunID, batch.Token = "", ""
	require.NoError(t, b.FilesAppend(b.ctx, batch), "as a seal does")
	b.reserve(t, batch.Generation+1)
	batch.Changes = []workspacefile.Change{written(3, "a", "3")}
	refused("generation", batch)
	require.Equal(t, []string{"created a 1", "modified a 1"}, b.fileEvents(t))
}

func TestSandboxCannotFillDatabase(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	big := strings.Repeat("x", workspacefile.MaxBytes)
	tooLong := written(1, "over", big+"x")
	batch.Changes = []workspacefile.Change{
		tooLong, written(2, "../escape", "1"), written(3, "/abs", "1"), written(4, "a//b", "1"), written(5, "", "1"),
		written(6, strings.Repeat("p", workspacefile.MaxPath+1), "1"), written(7, "nul\x00", "1"), written(8, "bad\xff", "1"),
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.Equal(t, []string{"over"}, b.paths(t, ""))
	f, err := b.FileGet(b.ctx, b.id, "over")
	require.NoError(t, err)
	require.Equal(t, workspacefile.UnsavedTooLarge, f.Unsaved)

	batch.Changes = nil
	for n := range int64(65) {
		batch.Changes = append(batch.Changes, written(10+n, fmt.Sprintf("f%02d", n), big))
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	f, err = b.FileGet(b.ctx, b.id, "f64")
	require.NoError(t, err)
	require.Equal(t, workspacefile.UnsavedFull, f.Unsaved)
	batch.Changes = []workspacefile.Change{removed(100, "f00"), written(101, "f64", big)}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	f, err = b.FileGet(b.ctx, b.id, "f64")
	require.NoError(t, err)
	require.True(t, f.Saved(), "deleted files make room")

	batch.Changes = nil
	for n := range int64(1500) {
		batch.Changes = append(batch.Changes, written(200+2*n, fmt.Sprintf("t%04d", n), "1"))
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	for n := range batch.Changes {
		batch.Changes[n] = removed(10_000+int64(n), batch.Changes[n].Path)
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	_, err = b.FileGet(b.ctx, b.id, "t0000")
	require.ErrorContains(t, err, "was deleted at")
	_, err = b.FileGet(b.ctx, b.id, "t1499")
	require.NotContains(t, err.Error(), "was deleted at", "only some deleted files are remembered")
}

func TestFullWorkspaceIsErrorEvent(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.BoundedSeq = 3
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	var notes []string
	for _, e := range b.events(t) {
		if e.Type == "error" {
			notes = append(notes, string(e.Data))
		}
	}
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "workspace_too_large")
	require.Contains(t, notes[0], "20000")
}

func TestDiffIsStoredWithFiles(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	d, err := b.DiffGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, d, "none was taken yet")
	batch.Diff = &workspacefile.Diff{
		Key: "k1", Base: "c0ffee", Files: []workspacefile.Delta{{Path: "a\x00", Change: workspacefile.Created, Additions: 2}}, Additions: 2,
		FilesChanged: 1, Git: &workspacefile.GitState{Branch: "main", Dirty: true}, Patch: []byte("+a\n\xff"), At: time.Unix(1000, 0).UTC(),
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	want := *batch.Diff
	batch.Diff, batch.Changes = nil, []workspacefile.Change{written(1, "a", "1")}
	require.NoError(t, b.FilesAppend(b.ctx, batch), "which leaves the diff unchanged")
	d, err = b.DiffGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, &want, d)
	p, err := b.FilesPosition(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "k1", p.DiffKey)
	_, err = b.DiffGet(b.ctx, session.NewID(session.SessionPrefix))
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}

func TestFilesAreListedInPages(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	for n, p := range []string{"b", "a/%", "a/x", "B", "ä", "a_"} {
		batch.Changes = append(batch.Changes, written(int64(n+1), p, "1"))
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	var all []string
	for cursor := ""; ; {
		items, next, err := b.FileList(b.ctx, b.id, "", 2, cursor)
		require.NoError(t, err)
		for _, f := range items {
			all = append(all, f.Path)
		}
		if cursor = next; cursor == "" {
			break
		}
		require.Len(t, items, 2)
	}
	require.Equal(t, []string{"B", "a/%", "a/x", "a_", "b", "ä"}, all, "by their bytes")
	require.Equal(t, []string{"a/%"}, b.paths(t, "a/%"), "a prefix is not a pattern")
	_, _, err := b.FileList(b.ctx, b.id, "", 2, "nonsense!")
	require.Equal(t, failure.Invalid, failure.CodeOf(err))
	_, _, err = b.FileList(b.ctx, session.NewID(session.SessionPrefix), "", 2, "")
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}
