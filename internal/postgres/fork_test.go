package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// fork forks the session of b, and returns a bundle for the fork.
func (b *harness) fork(t *testing.T, f fork.Fork) *harness {
	t.Helper()
	f.ID, f.SessionID = session.NewID(session.SessionPrefix), b.id
	s, created, err := b.SessionFork(b.ctx, f, nil, session.Idempotency{})
	require.NoError(t, err)
	require.True(t, created)
	return &harness{DB: b.DB, url: b.url, ctx: b.ctx, id: s.ID}
}

// spoken returns the texts of the session's current conversation, and checks that its events fold
// to the same.
func (b *harness) spoken(t *testing.T) []string {
	t.Helper()
	c, _, err := b.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	var folded conversation.Folder
	for _, e := range b.events(t) {
		require.NoError(t, folded.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
	}
	require.Len(t, folded.Conversation().Threads[0].Blocks, len(c.Threads[0].Blocks))
	texts := []string{}
	for i, block := range c.Threads[0].Blocks {
		require.Equal(t, block.Content, folded.Conversation().Threads[0].Blocks[i].Content)
		texts = append(texts, block.Content)
	}
	return texts
}

func TestForkStartsAtBundleOfSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, _ := b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	second, _ := b.turn(t, "two", session.OutcomeCompleted)
	two := b.snapshotted(t, "im-2")
	third, _ := b.turn(t, "three", session.OutcomeCompleted)
	waits := b.submit(t, "waits")

	for _, tt := range []struct {
		f    fork.Fork
		base bundle.View
		want []string
	}{
		{fork.Fork{BundleID: one.ID}, one, []string{"one"}},
		{fork.Fork{PromptID: second}, two, []string{"one", "two"}},
		{fork.Fork{PromptID: second, Before: true}, one, []string{"one"}},
		{fork.Fork{PromptID: third, Before: true}, two, []string{"one", "two"}},
	} {
		f := b.fork(t, tt.f)
		require.Equal(t, tt.want, f.spoken(t))
		s, err := f.SessionGet(f.ctx, f.id)
		require.NoError(t, err)
		require.Equal(t, session.Hibernated, s.Status)
		require.Equal(t, b.id, s.ForkedFrom)
		require.Equal(t, fork.Point{BundleID: tt.base.ID, PromptID: tt.base.PromptID}, s.Fork)
		head, err := f.BundleHead(f.ctx, f.id)
		require.NoError(t, err)
		require.Equal(t, tt.base.SnapshotID, head.SnapshotID)
		require.Equal(t, tt.base.Manifest, head.Manifest)
		require.Equal(t, tt.want, f.texts(t, head.ID))

		// The fork works with the memory of its parent.
		f.transit(t, session.EventWake, "")
		f.reserve(t, 1)
		f.transit(t, session.EventReady, "")
		prompt := f.submit(t, "more")
		runID := f.begin(t, prompt)
		start, err := f.RunAttach(f.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
		require.NoError(t, err)
		require.True(t, start.Resume)
		require.Equal(t, b.id, start.MemoryID)
		f.say(t, runID, "more")
		_, err = f.RunEnd(f.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
		require.Equal(t, append(tt.want, "more"), f.spoken(t))
	}
	require.Equal(t, []string{"one", "two", "three"}, b.spoken(t), "the original has none of it")

	for f, code := range map[fork.Fork]failure.Code{
		{PromptID: third}: failure.NoBundleThere, {PromptID: first, Before: true}: failure.NoBundleThere, {PromptID: "none"}: failure.NoPrompt,
		{PromptID: waits}: failure.IllegalState, {BundleID: session.NewID(session.BundlePrefix)}: failure.NoBundle,
	} {
		f.ID, f.SessionID = session.NewID(session.SessionPrefix), b.id
		_, _, err := b.SessionFork(b.ctx, f, nil, session.Idempotency{})
		requireCode(t, code, err)
	}
	_, _, err := b.SessionFork(b.ctx, fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, PromptID: third}, nil, session.Idempotency{})
	require.ErrorContains(t, err, "the nearest before is "+two.ID)
}

func TestForkOfForkKeepsNameOfItsMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	head, err := f.BundleHead(f.ctx, f.id)
	require.NoError(t, err)
	f.transit(t, session.EventWake, "")
	f.reserve(t, 1)
	f.transit(t, session.EventReady, "")
	later := f.snapshotted(t, "im-2")
	base := f.show(t, head.ID)
	require.Equal(t, base.PromptID, later.PromptID, "before its first turn it is at the point where it began")
	g := f.fork(t, fork.Fork{BundleID: later.ID})
	g.transit(t, session.EventWake, "")
	g.reserve(t, 1)
	g.transit(t, session.EventReady, "")
	start, err := g.RunAttach(g.ctx, g.begin(t, g.submit(t, "x")), "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, b.id, start.MemoryID)
	items, _, err := b.SessionForks(b.ctx, b.id, 1, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, f.id, items[0].ID)
}

func TestFiftyForksOfOneBundleAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	open := b.begin(t, b.submit(t, "two")) // the parent is in a turn meanwhile
	errs := make([]error, 50)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			f := fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, BundleID: one.ID}
			_, _, errs[i] = b.SessionFork(b.ctx, f, &session.Prompt{ID: "p", Content: "x"}, session.Idempotency{})
		})
	}
	b.say(t, open, "two")
	wait.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		items, next, err := b.SessionForks(b.ctx, b.id, 20, cursor)
		require.NoError(t, err)
		for _, s := range items {
			seen[s.ID] = true
			require.EqualValues(t, 1, s.Queue.Queued)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Len(t, seen, 50)
	require.Equal(t, []string{"one", "two"}, b.spoken(t))
}

func TestForkIsMadeOnceForKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	one := b.snapshotted(t, "im-1")
	var made []string
	for range 2 {
		f := fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, BundleID: one.ID}
		s, created, err := b.SessionFork(b.ctx, f, nil, session.Idempotency{Key: "k", Digest: "d"})
		require.NoError(t, err)
		require.Equal(t, len(made) == 0, created)
		made = append(made, s.ID)
	}
	require.Equal(t, made[0], made[1])
	_, _, err := b.SessionFork(b.ctx, fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, BundleID: one.ID}, nil, session.Idempotency{Key: "k", Digest: "e"})
	requireCode(t, failure.Idempotency, err)
}

func TestSnapshotIsKeptWhileForkNeedsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	one := b.snapshotted(t, "im-1")
	f := b.fork(t, fork.Fork{BundleID: one.ID})
	last := b.commit(t, "im-2")
	require.NoError(t, b.BundleProve(b.ctx, last.ID))
	require.Empty(t, b.condemned(t))

	_, err := b.PurgeRequest(b.ctx, b.id, fork.Refuse)
	requireCode(t, failure.HasForks, err)
	require.ErrorContains(t, err, "has forks (1)")
	_, err = b.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	_, err = b.PurgeRequest(b.ctx, b.id, fork.Refuse)
	require.NoError(t, err, "it is requested already")
	_, _, err = b.SessionFork(b.ctx, fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, BundleID: one.ID}, nil, session.Idempotency{})
	requireCode(t, failure.IllegalState, err)
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	left, err := b.PurgeImages(b.ctx, b.id)
	require.NoError(t, err)
	require.EqualValues(t, 1, left, "the fork has the other one now")
	require.Equal(t, []string{"im-2"}, b.condemned(t))
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-2"}))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "purged"))
	b.sql(t, "DELETE FROM exit_images")
	require.NoError(t, b.PurgeSession(b.ctx, b.id))
	require.True(t, f.show(t, f.head(t)).HasFiles)
	_, err = f.message(t, "m", "parent", 0)
	requireCode(t, failure.NoSession, err)

	f.transit(t, session.EventStop, "")
	_, err = f.SnapshotsAudit(f.ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"im-1"}, f.condemned(t))
}

func (b *harness) head(t *testing.T) string {
	t.Helper()
	head, err := b.BundleHead(b.ctx, b.id)
	require.NoError(t, err)
	return head.ID
}

func TestPurgeMayIncludeForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	g := f.fork(t, fork.Fork{BundleID: f.head(t)})
	_, err := b.PurgeRequest(b.ctx, b.id, fork.Purge)
	require.NoError(t, err)
	due, err := b.PurgesTake(b.ctx, 10)
	require.NoError(t, err)
	var ids []string
	for _, p := range due {
		ids = append(ids, p.SessionID)
	}
	require.ElementsMatch(t, []string{b.id, f.id, g.id}, ids)
}

// TestPurgedForkStillLinksItsForks purges a fork in the middle: its own forks still have the first
// session's conversation.
func TestPurgedForkStillLinksItsForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	g := f.fork(t, fork.Fork{BundleID: f.head(t)})
	h := g.fork(t, fork.Fork{BundleID: g.head(t)})
	for _, gone := range []*harness{f, g} {
		_, err := gone.PurgeRequest(b.ctx, gone.id, fork.Detach)
		require.NoError(t, err)
		gone.transit(t, session.EventStop, "")
		require.NoError(t, gone.PurgeContent(b.ctx, gone.id))
		require.NoError(t, gone.PurgeSession(b.ctx, gone.id))
		_, err = b.PurgeRequest(b.ctx, b.id, fork.Refuse)
		requireCode(t, failure.HasForks, err)
		require.ErrorContains(t, err, "has forks (")
	}
	require.Equal(t, []string{"one"}, h.spoken(t))
	require.Zero(t, b.count(t, "session_forks WHERE session_id <> '"+h.id+"'"))
	_, err := h.message(t, "m", b.id, 0)
	requireCode(t, failure.Forbidden, err) // the purge of its parent does not let it reach another session
	items, _, err := b.SessionForks(b.ctx, g.id, 10, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, g.id, items[0].ForkedFrom)

	_, err = b.PurgeRequest(b.ctx, b.id, fork.Purge)
	require.NoError(t, err)
	require.Equal(t, 1, b.count(t, "purges WHERE session_id = '"+h.id+"'"))
}

// stoppedFork begins a fork of the session of b, and returns once it waits for a lock that the
// statement takes. finish releases the lock, and returns the error of the fork.
func (b *harness) stoppedFork(t *testing.T, f fork.Fork, statement string) (finish func() error) {
	t.Helper()
	f.ID, f.SessionID = session.NewID(session.SessionPrefix), b.id
	conn, err := pgx.Connect(context.Background(), b.url)
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, statement)
	require.NoError(t, err)
	forked := make(chan error, 1) // one send
	go func() {
		_, _, err := b.SessionFork(context.Background(), f, nil, session.Idempotency{})
		forked <- err
	}()
	finish = sync.OnceValue(func() error {
		_, err := conn.Exec(context.Background(), "ROLLBACK")
		return errors.Join(err, conn.Close(context.Background()), <-forked)
	})
	t.Cleanup(func() { finish() }) //nolint:errcheck // the test has read the error, or has failed
	require.Eventually(t, func() bool { return b.waitsForLock(t) }, waitLimit, 5*time.Millisecond)
	return finish
}

// TestPurgeRefusesForkInProgress stops a fork after its check that the parent is not being purged.
func TestPurgeRefusesForkInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	saved := b.snapshotted(t, "im-1").ID
	finish := b.stoppedFork(t, fork.Fork{BundleID: saved}, "LOCK TABLE session_forks IN SHARE MODE")
	b.turn(t, "two", session.OutcomeCompleted) // it does not delay turns
	_, err := b.PurgeRequest(b.ctx, b.id, fork.Refuse)
	require.NoError(t, err, "it does not delay a purge either")
	requireCode(t, failure.IllegalState, finish())
	require.Equal(t, 1, b.count(t, "sessions"))
}

// TestPurgeWaitsForCommitOfFork stops forks in their commit.
func TestPurgeWaitsForCommitOfFork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	saved := b.snapshotted(t, "im-1").ID
	b.sql(t, `CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$`)
	b.sql(t, "CREATE CONSTRAINT TRIGGER stop AFTER INSERT ON session_forks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stop()")
	const hold = "SELECT pg_advisory_xact_lock(1)"
	hasty := b.open(t, postgres.Options{LockTimeout: 50 * time.Millisecond})

	finish := b.stoppedFork(t, fork.Fork{BundleID: saved}, hold)
	for _, policy := range []fork.Policy{fork.Refuse, fork.Detach, fork.Purge} {
		_, err := hasty.PurgeRequest(b.ctx, b.id, policy)
		requireCode(t, failure.Unavailable, err)
	}
	b.turn(t, "two", session.OutcomeCompleted) // turns do not wait for it
	require.NoError(t, finish())
	_, err := b.PurgeRequest(b.ctx, b.id, fork.Refuse)
	requireCode(t, failure.HasForks, err)

	// The same for a fork of a fork.
	items, _, err := b.SessionForks(b.ctx, b.id, 10, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	f := &harness{DB: b.DB, url: b.url, ctx: b.ctx, id: items[0].ID}
	finish = f.stoppedFork(t, fork.Fork{BundleID: f.head(t)}, hold)
	_, err = hasty.PurgeRequest(b.ctx, b.id, fork.Purge)
	requireCode(t, failure.Unavailable, err)
	require.Zero(t, b.count(t, "purges"))
	require.NoError(t, finish())

	// And for retention.
	f.transit(t, session.EventStop, "")
	finish = f.stoppedFork(t, fork.Fork{BundleID: f.head(t)}, hold)
	n, err := b.PurgeTerminated(b.ctx, 0, 10)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, finish())
	n, err = b.PurgeTerminated(b.ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	_, err = b.PurgeRequest(b.ctx, b.id, fork.Purge)
	require.NoError(t, err)
	require.Equal(t, 4, b.count(t, "sessions"))
	require.Equal(t, 4, b.count(t, "purges"))
}

// TestForkDoesNotWaitForTurns holds the lock of a write to the parent.
func TestForkDoesNotWaitForTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	saved := b.snapshotted(t, "im-1").ID
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	_, err = conn.Exec(b.ctx, "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, "SELECT FROM sessions WHERE id = $1 FOR NO KEY UPDATE", b.id)
	require.NoError(t, err)
	b.fork(t, fork.Fork{BundleID: saved})
}
