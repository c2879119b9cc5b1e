package postgres_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// stored returns the content of an archive.
func (b *harness) stored(t *testing.T, id string) []byte {
	t.Helper()
	var out []byte
	for piece, err := range b.ArchiveContent(b.ctx, id) {
		require.NoError(t, err)
		out = append(out, piece...)
	}
	return out
}

// noise returns incompressible data that needs more than one part.
func noise(t *testing.T) []byte {
	t.Helper()
	data := make([]byte, 5<<19)
	_, err := rand.Read(data)
	require.NoError(t, err)
	return data
}

func imported() bundle.Import {
	return bundle.Import{
		Session:  session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Title: "mine", IdleTimeout: time.Minute, Workspace: &session.Workspace{Setup: "true"}},
		MemoryID: session.NewID(session.SessionPrefix), Remembers: true, Place: "/home/ada",
		Manifest: manifest.Manifest{Lost: []string{"ignored"}, From: "/home/ada", AgentFiles: []manifest.File{{Path: "/root/a", Size: 1, SHA256: "x"}}},
		PromptID: "p1", Outcome: session.OutcomeCompleted,
		Blocks: []bundle.ImportedBlock{
			{Conversation: "main", ID: "b1", JSON: []byte(`{"id":"b1","type":"assistant_text","status":"complete","createdAt":"2026-01-02T03:04:05.000Z","content":"one"}`)},
			{Conversation: "sub", ID: "b1", JSON: []byte(`{"id":"b1","type":"assistant_text","status":"complete","createdAt":"2026-01-02T03:04:05.000Z","content":"two"}`)},
		},
	}
}

func TestImportedSessionWakesFromItsArchive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in, data := imported(), noise(t)
	s, created, err := b.SessionImport(b.ctx, in, bytes.NewReader(data), session.Idempotency{Key: "k", Digest: "d"})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, session.Hibernated, s.Status)
	require.Equal(t, "true", s.Workspace.Setup)
	again, created, err := b.SessionImport(b.ctx, imported(), bytes.NewReader(data), session.Idempotency{Key: "k", Digest: "d"})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, s.ID, again.ID)

	moved := &harness{DB: b.DB, url: b.url, ctx: b.ctx, id: s.ID}
	require.Equal(t, []string{"one"}, moved.spoken(t))
	head, err := b.BundleHead(b.ctx, s.ID)
	require.NoError(t, err)
	require.Empty(t, head.SnapshotID)
	require.Equal(t, in.Manifest.Lost, head.Manifest.Lost)
	require.Equal(t, data, moved.stored(t, head.ArchiveID))
	view, err := b.BundleShow(b.ctx, head.ID)
	require.NoError(t, err)
	require.True(t, view.HasFiles)
	require.Equal(t, "p1", view.PromptID)
	a, err := b.ArchiveRequest(b.ctx, head.ID)
	require.NoError(t, err)
	require.Equal(t, bundle.Archive{ID: head.ArchiveID, BundleID: head.ID, MemoryID: in.MemoryID, State: bundle.ArchiveReady, Bytes: int64(len(data))}, a)

	fork := moved.fork(t, fork.Fork{BundleID: head.ID})
	forked, err := b.BundleHead(b.ctx, fork.id)
	require.NoError(t, err)
	require.Equal(t, head.ArchiveID, forked.ArchiveID, "a fork has the same files")
	for _, one := range []*harness{moved, fork} {
		one.transit(t, session.EventWake, "")
		one.reserve(t, 1)
		one.transit(t, session.EventReady, "")
		start, err := one.RunAttach(one.ctx, one.begin(t, one.submit(t, "next")), "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
		require.NoError(t, err)
		require.Equal(t, in.MemoryID, start.MemoryID)
		require.True(t, start.Resume)
	}
}

func TestInterruptedImportLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := io.MultiReader(bytes.NewReader(noise(t)), failing{})
	in := imported()
	_, _, err := b.SessionImport(b.ctx, in, broken, session.Idempotency{Key: "k", Digest: "d"})
	require.ErrorContains(t, err, errBroken.Error())
	_, err = b.SessionGet(b.ctx, in.Session.ID)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
	for _, table := range []string{"archives", "archive_parts", "session_imports", "idempotency_keys"} {
		require.Zero(t, b.count(t, table), table)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func TestArchiveIsMadeByOneAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	v := b.snapshotted(t, "im-1")
	_, err := b.ArchiveShow(b.ctx, v.ID)
	require.Equal(t, failure.IllegalState, failure.CodeOf(err))
	for range 2 {
		a, err := b.ArchiveRequest(b.ctx, v.ID)
		require.NoError(t, err)
		require.Equal(t, bundle.ArchivePending, a.State)
		require.Equal(t, b.id, a.MemoryID)
	}
	first := b.taken(t)
	require.Equal(t, "im-1", first.Bundle.SnapshotID)
	require.Equal(t, "demo", first.Agent)
	due, err := b.ArchivesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, due, "it is in the hands of one worker")
	require.NoError(t, b.ArchiveRenew(b.ctx, first.ID, first.Attempt))

	b.sql(t, "UPDATE archives SET next_at = now()") // the first worker is frozen
	second := b.taken(t)
	require.Equal(t, first.Attempt+1, second.Attempt)
	require.Error(t, b.ArchiveRenew(b.ctx, first.ID, first.Attempt))
	stale, fresh := noise(t), noise(t)
	require.Equal(t, failure.IllegalState, failure.CodeOf(b.ArchiveWrite(b.ctx, first.ID, first.Attempt, bytes.NewReader(stale))))
	require.NoError(t, b.ArchiveFail(b.ctx, first.ID, first.Attempt, "late", true))
	require.NoError(t, b.ArchiveWrite(b.ctx, second.ID, second.Attempt, bytes.NewReader(fresh)))
	a, err := b.ArchiveShow(b.ctx, v.ID)
	require.NoError(t, err)
	require.Equal(t, bundle.ArchiveReady, a.State)
	require.Equal(t, fresh, b.stored(t, a.ID))

	require.NoError(t, b.ArchivesCollect(b.ctx))
	require.Equal(t, 1, b.count(t, "archives"))
	b.sql(t, "UPDATE archives SET expires_at = now()")
	require.NoError(t, b.ArchivesCollect(b.ctx))
	require.Zero(t, b.count(t, "archives"))
	require.Zero(t, b.count(t, "archive_parts"))
}

func TestFailedArchiveIsRetriedOnRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	v := b.snapshotted(t, "im-1")
	_, err := b.ArchiveRequest(b.ctx, v.ID)
	require.NoError(t, err)
	work := b.taken(t)
	require.NoError(t, b.ArchiveFail(b.ctx, work.ID, work.Attempt, "it is gone", true))
	a, err := b.ArchiveShow(b.ctx, v.ID)
	require.NoError(t, err)
	require.Equal(t, bundle.ArchiveFailed, a.State)
	require.Equal(t, "it is gone", a.Reason)
	a, err = b.ArchiveRequest(b.ctx, v.ID)
	require.NoError(t, err)
	require.Equal(t, bundle.ArchivePending, a.State)
	require.EqualValues(t, 1, b.taken(t).Tries)
}

// taken returns the archive that is due.
func (b *harness) taken(t *testing.T) bundle.ArchiveWork {
	t.Helper()
	due, err := b.ArchivesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, due, 1)
	return due[0]
}

func TestPurgeDeletesUnneededArchives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _, err := b.SessionImport(b.ctx, imported(), bytes.NewReader(noise(t)), session.Idempotency{})
	require.NoError(t, err)
	moved := &harness{DB: b.DB, url: b.url, ctx: b.ctx, id: s.ID}
	head, err := b.BundleHead(b.ctx, s.ID)
	require.NoError(t, err)
	forked := moved.fork(t, fork.Fork{BundleID: head.ID})
	purge := func(one *harness, forks fork.Policy) {
		_, err := one.PurgeRequest(one.ctx, one.id, forks)
		require.NoError(t, err)
		one.transit(t, session.EventStop, "")
		require.NoError(t, one.PurgeContent(one.ctx, one.id))
		require.NoError(t, one.PurgeSession(one.ctx, one.id))
	}
	purge(moved, fork.Detach)
	require.Equal(t, 1, b.count(t, "archives"), "the fork needs it")
	purge(forked, fork.Refuse)
	require.Zero(t, b.count(t, "archives"))
	require.Zero(t, b.count(t, "archive_parts"))
}

// TestPurgeEndsArchiveInProgress purges a session between two parts of its archive.
func TestPurgeEndsArchiveInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	v := b.snapshotted(t, "im-1")
	_, err := b.ArchiveRequest(b.ctx, v.ID)
	require.NoError(t, err)
	work := b.taken(t)
	b.transit(t, session.EventStop, session.ReasonRequested)
	_, err = b.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	purge := readerFunc(func([]byte) (int, error) {
		require.Equal(t, 2, b.count(t, "archive_parts"))
		require.NoError(t, b.PurgeContent(b.ctx, b.id))
		return 0, io.EOF
	})
	require.Error(t, b.ArchiveWrite(b.ctx, work.ID, work.Attempt, io.MultiReader(bytes.NewReader(noise(t)[:2<<20]), purge, bytes.NewReader(noise(t)))))
	require.Zero(t, b.count(t, "archives"))
	require.Zero(t, b.count(t, "archive_parts"))

	_, err = b.ArchiveRequest(b.ctx, v.ID) // the bundle is deleted once its images are
	require.NoError(t, err)
	due, err := b.ArchivesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, due)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
