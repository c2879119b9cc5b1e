package activities_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// images returns the images of the session at the provider.
func (b *harness) images(t *testing.T) (ids []string) {
	t.Helper()
	listed, err := b.provider.ListImages(b.ctx)
	require.NoError(t, err)
	for _, image := range listed {
		if image.Role == "" {
			ids = append(ids, image.ID)
		}
	}
	return ids
}

// look reconciles with all pauses and minimum ages removed.
func (b *harness) look(t *testing.T) activities.Reconciled {
	t.Helper()
	b.sql(t, `UPDATE snapshots SET delete_after = now()`)
	b.sql(t, `UPDATE exit_images SET next_at = now()`)
	if b.memory != nil {
		b.memory.AgeImages(10 * time.Minute)
	}
	found, err := b.reconcile()
	require.NoError(t, err)
	return found
}

// TestStoppedSessionLeavesNoImages hibernates, wakes and stops a session, with the local Modal.
func TestStoppedSessionLeavesNoImages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.OrphanAge = time.Millisecond
	b.build()
	require.NoError(t, b.db.BundlesConfigure(b.ctx, 1, checkpoint.Hibernate))
	s := b.create(t)
	const cycles = 3
	for cycle := range cycles {
		b.shell(t, s.SandboxID, "dd if=/dev/urandom of="+runner.DefaultPaths().Workspace+"/big bs=1M count=4 2>/dev/null")
		for _, event := range []session.Event{session.EventReady, session.EventHibernate} {
			if cycle == 0 || event == session.EventHibernate {
				b.transit(t, event)
			}
		}
		_, err := b.save(s)
		require.NoError(t, err)
		b.terminate(t, s)
		b.transit(t, session.EventSaved)
		b.look(t)
		require.LessOrEqual(t, len(b.images(t)), 2, "the newest snapshot, and the previous one until the newest is verified")
		b.transit(t, session.EventWake)
		s, err = b.restore(int64(cycle + 2))
		require.NoError(t, err)
		b.transit(t, session.EventReady)
	}
	b.terminate(t, s)
	b.transit(t, session.EventStop)
	require.NotEmpty(t, b.images(t))
	b.look(t)
	require.Empty(t, b.images(t))
	counts, err := b.db.ImageCounts(b.ctx, 0)
	require.NoError(t, err)
	require.Zero(t, counts)
}

// TestExitImageOfSavedSandboxIsDeleted checks that the exit image of a saved sandbox is deleted,
// and that of an unsaved sandbox is kept.
func TestExitImageOfSavedSandboxIsDeleted(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.hibernate(t)
	require.Len(t, b.images(t), 2, "the snapshot and the exit image")
	require.Equal(t, 1, b.look(t).Deleted)
	require.Equal(t, []string{b.head(t).SnapshotID}, b.images(t))

	// The next generation ends before it is saved.
	b.transit(t, session.EventWake)
	s, err := b.restore(2)
	require.NoError(t, err)
	b.transit(t, session.EventReady)
	b.memory.Kill(s.SandboxID, 1)
	b.look(t)
	require.Len(t, b.images(t), 2, "its exit image is all that is left of it")
	b.sql(t, `UPDATE sandboxes SET status = 'terminated', ended_at = now() WHERE generation = 2`)
	b.look(t)
	require.Len(t, b.images(t), 2, "whether or not its row is ended")
	_, err = b.rescue(s)
	require.NoError(t, err)
	rescued := b.head(t).SnapshotID
	b.terminate(t, s)
	b.look(t)
	require.Contains(t, b.images(t), rescued)
}

// TestImageHiddenByCrashIsFound looks for an image that the provider made, but whose id was lost.
func TestImageHiddenByCrashIsFound(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(b *harness){
		"the answer is lost": func(b *harness) {
			b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpSnapshot, Code: driver.Unavailable, After: true})
		},
		"the worker dies": func(b *harness) {
			b.steps.set(func(step string, _ *eventlog.Append) error {
				if step == stepSnapshot {
					return context.Canceled
				}
				return nil
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			s := b.create(t)
			b.transit(t, session.EventReady)
			fault(b)
			_, err := b.save(s)
			require.Error(t, err)
			b.steps.set(nil, nil)
			counts, err := b.db.ImageCounts(b.ctx, 0)
			require.NoError(t, err)
			require.EqualValues(t, 1, counts.Hidden, "a possible image is recorded")
			require.Len(t, b.images(t), 1)
			found, err := b.reconcile()
			require.NoError(t, err)
			require.Zero(t, found.Deleted, "a young one may be about to be recorded")
			_, err = b.save(s)
			require.NoError(t, err)
			b.look(t)
			require.Equal(t, []string{b.head(t).SnapshotID}, b.images(t))
			b.sql(t, `UPDATE image_intents SET created_at = created_at - interval '2 hours'`)
			b.look(t)
			counts, err = b.db.ImageCounts(b.ctx, 0)
			require.NoError(t, err)
			require.Zero(t, counts.Hidden)
		})
	}
}

// TestImageFoundByCollectorIsNotUsed freezes a worker between a snapshot and its record. When the
// worker continues, it makes another snapshot.
func TestImageFoundByCollectorIsNotUsed(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	s := b.create(t)
	b.transit(t, session.EventReady)
	var once sync.Once
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepSnapshot {
			once.Do(func() { b.look(t) })
		}
		return nil
	}, nil)
	_, err := b.save(s)
	requirePassing(t, err)
	require.Empty(t, b.images(t))
	_, err = b.save(s)
	require.NoError(t, err)
	require.Equal(t, []string{b.head(t).SnapshotID}, b.images(t))
}

// TestExpiringSnapshotIsRenewed checks that the session stays asleep during the renewal and wakes
// from the copy.
func TestExpiringSnapshotIsRenewed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.create(t)
	b.transit(t, session.EventReady)
	b.transit(t, session.EventHibernate)
	b.shell(t, s.SandboxID, "echo kept > "+runner.DefaultPaths().Workspace+"/f")
	_, err := b.save(s)
	require.NoError(t, err)
	b.terminate(t, s)
	b.transit(t, session.EventSaved)
	var days int
	b.query(t, &days, `SELECT round(extract(epoch FROM expires_at - now()) / 86400)::int FROM snapshots WHERE bundled`)
	require.Equal(t, 365, days, "an image hidden by a crash is deleted eventually")
	before := b.head(t)
	b.look(t)
	require.Equal(t, before, b.head(t), "it is young")

	b.sql(t, `UPDATE snapshots SET expires_at = now() + interval '100 days' WHERE bundled`)
	b.look(t)
	after := b.head(t)
	require.NotEqual(t, before.SnapshotID, after.SnapshotID)
	require.Equal(t, before.ID, after.ID)
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Empty(t, listed, "the sandbox of the copy has ended")
	b.query(t, &days, `SELECT round(extract(epoch FROM expires_at - now()) / 86400)::int FROM snapshots WHERE id = $1`, after.SnapshotID)
	require.Equal(t, 365, days)
	exists, err := b.provider.ImageExists(b.ctx, before.SnapshotID)
	require.NoError(t, err)
	require.True(t, exists, "a restore may have begun with it")
	b.look(t)
	require.Equal(t, after, b.head(t), "once is enough")

	b.transit(t, session.EventWake)
	restored, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, restored.Receipt.Kind)
	require.Equal(t, "kept\n", b.shell(t, restored.SandboxID, "cat "+runner.DefaultPaths().Workspace+"/f"))
	b.sql(t, `UPDATE snapshots SET kept_until = now()`)
	b.look(t)
	b.look(t)
	exists, err = b.provider.ImageExists(b.ctx, before.SnapshotID)
	require.NoError(t, err)
	require.False(t, exists)
}

// TestBacklogOfDeletionsIsDrained checks that one reconciliation drains the backlog, and that
// images that cannot be deleted do not block others.
func TestBacklogOfDeletionsIsDrained(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.sql(t, `INSERT INTO snapshots (id, session_id, generation, unneeded_at) SELECT 'im-gone-' || n, $1, 1, now() FROM generate_series(1, 3000) n`, b.id)
	b.driver.set(func(f *faulty) {
		f.deleteImage = func(id string) error {
			if strings.HasSuffix(id, "000") || strings.HasSuffix(id, "500") {
				return driver.Errorf(driver.Conflict, "delete image", id, "it is in use")
			}
			return nil
		}
	})
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, 2994, found.Deleted)
	b.driver.repair()
	require.Equal(t, 6, b.look(t).Deleted)
}

// TestUnavailableProviderIsNotAskedForEveryImage also checks that the retry pauses of the images do
// not grow, because the images did not cause the failure.
func TestUnavailableProviderIsNotAskedForEveryImage(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.sql(t, `INSERT INTO snapshots (id, session_id, generation, unneeded_at) SELECT 'im-gone-' || n, $1, 1, now() FROM generate_series(1, 3000) n`, b.id)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpDeleteImage, Code: driver.Unavailable, N: -1})
	before := b.memory.Calls(memsandbox.OpDeleteImage)
	_, err := b.reconcile()
	requirePassing(t, err)
	require.Less(t, b.memory.Calls(memsandbox.OpDeleteImage)-before, 100)
	b.memory.ClearFaults()
	found, err := b.reconcile()
	require.NoError(t, err)
	require.GreaterOrEqual(t, found.Deleted, 2500, "most were not tried and need not wait")
}

// TestFailedCollectionStepDoesNotBlockOthers makes a step of a reconciliation fail: the listing of
// sandboxes, and then the signals to workflows.
func TestFailedCollectionStepDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	dead := b.create(t)
	b.transit(t, session.EventReady)
	b.sql(t, `INSERT INTO snapshots (id, session_id, generation, unneeded_at) VALUES ('im-gone', $1, 1, now())`, b.id)
	b.driver.set(func(f *faulty) {
		f.list = func() error { return driver.Errorf(driver.Unavailable, "list", "", "injected") }
	})
	_, err := b.reconcile()
	requirePassing(t, err)
	counts, err := b.db.ImageCounts(b.ctx, 0)
	require.NoError(t, err)
	require.Zero(t, counts.Unneeded, "unneeded images are deleted although sandboxes could not be listed")

	b.driver.repair()
	b.memory.Kill(dead.SandboxID, 1)
	orphan, _, err := b.provider.Create(b.ctx, sandbox.Spec{Session: session.NewID(session.SessionPrefix), Generation: 1, Image: "debian:12"})
	require.NoError(t, err)
	b.signals.set(func(string) error { return errors.New("temporal is unavailable") })
	_, err = b.reconcile()
	require.ErrorContains(t, err, "temporal is unavailable")
	require.False(t, b.running(t, orphan.ID()))
	b.signals.set(nil)
	b.look(t)
	listed, err := b.provider.ListImages(b.ctx)
	require.NoError(t, err)
	for _, image := range listed {
		require.True(t, image.Session == b.id || image.Role != "", "the exit image of a sandbox that no row names is found as well: %v", image)
	}
}
