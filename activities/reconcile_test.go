package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// reconcile runs one reconciliation, in which everything that was reserved counts as old.
func (b *harness) reconcile() (activities.Reconciled, error) {
	return do(b, attempt{}, func(ctx context.Context, _ struct{}) (activities.Reconciled, error) {
		return b.control.Reconcile(ctx)
	}, struct{}{})
}

func (b *harness) age(t *testing.T) {
	t.Helper()
	b.sql(t, `UPDATE sandboxes SET reserved_at = reserved_at - interval '1 hour'`)
}

func TestReconcileLeavesHealthySessionsAlone(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.age(t)
	theirs, _, err := sandbox.NewProvider(b.memory, sandbox.Options{Installation: "another"}).
		Create(b.ctx, sandbox.Spec{Session: session.NewID(session.SessionPrefix), Generation: 1, Image: "debian:12"})
	require.NoError(t, err)
	installation, err := b.db.Installation(b.ctx)
	require.NoError(t, err)
	builder, err := b.memory.Create(b.ctx, driver.CreateRequest{
		Name: "builder-1", Image: "debian:12", Timeout: time.Minute,
		Tags: map[string]string{sandbox.TagInstallation: installation, sandbox.TagRole: sandbox.RoleBuilder},
	})
	require.NoError(t, err)
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, activities.Reconciled{Listed: 2}, found)
	for _, id := range []string{ready.SandboxID, theirs.ID(), builder} {
		require.True(t, b.running(t, id), id)
	}
	require.Empty(t, b.signals.all())
}

func TestReconcileReportsDeadSandboxesOncePerPass(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.memory.Kill(ready.SandboxID, 1)
	for looks := 1; looks <= 2; looks++ {
		found, err := b.reconcile()
		require.NoError(t, err)
		require.Equal(t, 1, found.Reported)
		require.Zero(t, found.Terminated)
		require.Len(t, b.signals.all(), looks)
		require.EqualValues(t, 1, b.signals.all()[0].Generation)
	}
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.SandboxUnhealthy, s.Sandbox.Status)
}

func TestReconcileRevivesMissingWorkflow(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.create(t)
	b.transit(t, session.EventReady)
	for _, event := range []session.Event{"", session.EventHibernate, session.EventSaved, session.EventWake, session.EventFail} {
		if event != "" {
			b.transit(t, event)
		}
		_, err := b.db.SessionOpen(b.ctx, b.id, "w1")
		require.NoError(t, err)
		b.signals.closed = map[string]bool{b.id: true}
		want := 1
		if event == session.EventSaved {
			want = 0 // it sleeps; a wake starts its workflow
		}
		for _, revived := range []int{want, 0} {
			found, err := b.reconcile()
			require.NoError(t, err)
			require.Equal(t, revived, found.Revived, event)
		}
	}
}

func TestReconcileSignalsWorkflowWithoutItsRun(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	in := b.claim(t, b.create(t), "forgotten")
	_, err := b.db.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	b.signals.forgotten = map[string]bool{in.RunID: true}
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Zero(t, found.Revived, "it was seen just now")
	b.sql(t, `UPDATE sessions SET last_activity_at = now() - interval '1 minute'`)
	found, err = b.reconcile()
	require.NoError(t, err)
	require.Zero(t, found.Revived, "its last event is young")
	b.sql(t, `UPDATE event_log SET at = now() - interval '1 minute'`)
	found, err = b.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, found.Revived)
}

func TestReconcileConfirmsDeathWithProvider(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.create(t)
	b.transit(t, session.EventReady)
	for _, code := range []driver.Code{driver.Unavailable, driver.Timeout} {
		// The list is out of date, and the provider does not answer queries.
		b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpPoll, Code: code})
		b.driver.set(func(f *faulty) { f.unlisted = true })
		_, err := b.reconcile()
		requirePassing(t, err)
		require.Empty(t, b.signals.all())
	}
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Zero(t, found.Reported, "it runs")
}

func TestReconcileTerminatesOrphans(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.age(t)
	// The row was closed although the sandbox still runs.
	require.NoError(t, b.db.SandboxEnd(b.ctx, b.id, 1, "test"))
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, activities.Reconciled{Listed: 1, Terminated: 1}, found)
	require.False(t, b.running(t, ready.SandboxID))
	found, err = b.reconcile()
	require.NoError(t, err)
	require.Equal(t, activities.Reconciled{}, found)
}

func TestReconcileTerminatesSandboxOfOlderGeneration(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	for _, event := range []session.Event{session.EventReady, session.EventHibernate, session.EventSaved} {
		b.transit(t, event)
	}
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Zero(t, found.Terminated, "a young one may be in the hands of who ends it")
	b.age(t)
	found, err = b.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, found.Terminated)
	require.False(t, b.running(t, ready.SandboxID))
}

// TestReconcileSparesSandboxCreatedDuringPass creates a sandbox whose row is written after the rows
// are read and before the listing.
func TestReconcileSparesSandboxCreatedDuringPass(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	var made activities.SandboxReady
	b.driver.set(func(f *faulty) {
		f.list = func() error {
			var err error
			made, err = do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 1})
			return err
		}
	})
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, activities.Reconciled{Listed: 1}, found)
	require.True(t, b.running(t, made.SandboxID))
}

func TestReconcileTerminatesNothingDuringProviderOutage(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.age(t)
	b.driver.set(func(f *faulty) {
		f.list = func() error { return driver.Errorf(driver.Unavailable, "list", "", "injected") }
	})
	before := b.memory.Calls(memsandbox.OpTerminate)
	_, err := b.reconcile()
	requirePassing(t, err)
	require.Equal(t, before, b.memory.Calls(memsandbox.OpTerminate))
	require.True(t, b.running(t, ready.SandboxID))
	require.Empty(t, b.signals.all())
}

func TestReconcileCorrectsSandboxHealth(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.create(t)
	b.sql(t, `UPDATE sandboxes SET status = 'starting', ready_at = NULL`)
	_, err := b.reconcile()
	require.NoError(t, err)
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.SandboxStarting, s.Sandbox.Status)
}

func TestReconcileDeletesOnlyUnneededSnapshots(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.db.Installation(b.ctx)
	require.NoError(t, err)
	b.sql(t, `UPDATE installation SET keep_bundles = 1`)
	ready := b.create(t)
	var snapshots []string
	exists := func(id string) bool {
		ok, err := b.provider.ImageExists(b.ctx, id)
		require.NoError(t, err)
		return ok
	}
	for generation := int64(2); generation <= 3; generation++ {
		_, err := b.save(ready)
		require.NoError(t, err)
		snapshots = append(snapshots, b.head(t).SnapshotID)
		b.terminate(t, ready)
		_, err = b.reconcile()
		require.NoError(t, err)
		for _, id := range snapshots {
			require.True(t, exists(id), "the newest is not verified yet, so the previous one is kept")
		}
		ready, err = b.restore(generation)
		require.NoError(t, err)
		require.Equal(t, receipt.Full, ready.Receipt.Kind)
	}
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, found.Deleted)
	require.False(t, exists(snapshots[0]))
	require.True(t, exists(snapshots[1]))
}
