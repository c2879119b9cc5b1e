package activities_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// slowPurge is a store in which the erasure of content waits for a number of renewals.
type slowPurge struct {
	*postgres.DB
	renewed atomic.Int64
	enough  chan struct{}
	taken   []purge.Purge // by another worker, after that
}

const renewals = 4 // of one second: the lease of PurgesTake is two

func (s *slowPurge) PurgeRenew(ctx context.Context, id string, lease time.Duration) error {
	err := s.DB.PurgeRenew(ctx, id, lease)
	if err == nil && s.renewed.Add(1) == renewals {
		close(s.enough)
	}
	return err
}

func (s *slowPurge) PurgeContent(ctx context.Context, id string) error {
	select {
	case <-s.enough:
	case <-time.After(waitLimit):
		return errors.New("the purge is not renewed")
	}
	var err error
	if s.taken, err = s.PurgesTake(ctx, 10); err != nil {
		return err
	}
	return s.DB.PurgeContent(ctx, id)
}

// noWorkflows implements Temporal without any workflows.
type noWorkflows struct{}

func (noWorkflows) SignalStop(context.Context, string) error    { return nil }
func (noWorkflows) Erase(context.Context, string) (bool, error) { return false, nil }

// TestPurgeStaysWithItsWorker checks that a worker keeps its purge even if a pass takes longer than
// the lease.
func TestPurgeStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.transit(t, session.EventStop)
	_, err := b.db.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	store := &slowPurge{DB: b.db, enough: make(chan struct{})}
	purger := activities.NewPurger(b.control, store, noWorkflows{}, activities.Retention{})
	require.NoError(t, purger.Pass(b.ctx))
	require.Empty(t, store.taken, "another worker takes it")
	_, err = b.db.SessionGet(b.ctx, b.id)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}

// TestPurgeEndsSandboxThatReadsImage checks that a sandbox without a row, whose worker may have been killed, does not
// keep the files of a purged session.
func TestPurgeEndsSandboxThatReadsImage(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.hibernate(t)
	reading, read := make(chan string, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	snapshot := b.head(t).SnapshotID
	go func() {
		read <- b.provider.ReadImage(ctx, snapshot, b.id, 1, func(ctx context.Context, sb *sandbox.Sandbox) error {
			reading <- sb.ID()
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	reader := <-reading
	require.True(t, b.running(t, reader))
	b.transit(t, session.EventStop)
	_, err := b.db.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	purger := activities.NewPurger(b.control, b.db, noWorkflows{}, activities.Retention{})
	require.Eventually(t, func() bool {
		b.due(t)
		require.NoError(t, purger.Pass(b.ctx))
		_, err := b.db.SessionGet(b.ctx, b.id)
		return failure.CodeOf(err) == failure.NoSession
	}, waitLimit, time.Millisecond)
	require.False(t, b.running(t, reader))
	cancel()
	require.Error(t, <-read)
}
