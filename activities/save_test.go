package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestSaveIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.say(t, ready, "something to keep")
	first, err := b.save(ready)
	require.NoError(t, err)
	require.True(t, first.Verified)
	second, err := b.save(ready)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.True(t, b.running(t, ready.SandboxID), "to end it is another step")

	head := b.head(t)
	require.Equal(t, first.BundleID, head.ID)
	require.Len(t, head.Manifest.AgentFiles, 1)
	require.EqualValues(t, len(b.events(t)), head.Manifest.LastSeq)
	exists, err := b.provider.ImageExists(b.ctx, head.SnapshotID)
	require.NoError(t, err)
	require.True(t, exists)
}

func TestSaveReleasesSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	release := func() (activities.Saved, error) {
		return do(b, attempt{}, b.control.SaveBundle, activities.SaveRequest{
			SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, BundleID: "bdl_released", Release: "hibernated",
		})
	}
	open := func() []session.SandboxRow {
		rows, err := b.db.SandboxesOpen(b.ctx, b.id)
		require.NoError(t, err)
		return rows
	}
	b.driver.set(func(f *faulty) {
		f.snapshot = func(id string) error { return driver.Errorf(driver.Unavailable, "snapshot", id, "injected") }
	})
	_, err := release()
	requirePassing(t, err)
	require.True(t, b.running(t, ready.SandboxID), "an unsaved sandbox is not terminated")

	b.driver.set(func(f *faulty) {
		f.snapshot = nil
		f.terminate = func(id string) error {
			require.Equal(t, "bdl_released", b.head(t).ID, "the bundle is committed first")
			return driver.Errorf(driver.Unavailable, "terminate", id, "injected")
		}
	})
	saved, err := release()
	require.NoError(t, err, "the bundle is committed whatever happens to the sandbox")
	require.Equal(t, activities.Saved{BundleID: "bdl_released", Verified: true}, saved)
	require.True(t, b.running(t, ready.SandboxID))
	require.Len(t, open(), 1)

	b.driver.repair()
	saved, err = release()
	require.NoError(t, err)
	require.Equal(t, activities.Saved{BundleID: "bdl_released", Verified: true, Released: true}, saved)
	require.False(t, b.running(t, ready.SandboxID))
	require.Empty(t, open())
	again, err := release()
	require.NoError(t, err)
	require.Equal(t, saved, again, "the answer of the attempt before may have been lost")
}

// TestSaveRecordsTransition checks that the session is shown as hibernated once its sandbox has
// ended.
func TestSaveRecordsTransition(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.transit(t, session.EventHibernate)
	then := session.Transition{
		SessionID: b.id, No: 3, From: session.Hibernating, To: session.Hibernated, Event: session.EventSaved,
		Reason: session.ReasonRequested, Generation: ready.Generation,
	}
	save := func(then session.Transition) activities.Saved {
		saved, err := do(b, attempt{}, b.control.SaveBundle, activities.SaveRequest{
			SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, BundleID: "bdl_then", Release: "hibernated", Then: &then,
		})
		require.NoError(t, err)
		require.True(t, saved.Released)
		return saved
	}
	state := func() session.Session {
		s, err := b.db.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s
	}
	stale := then
	stale.No++
	require.Zero(t, save(stale).Recorded, "the workflow learns why when it records the transition itself")
	require.Equal(t, session.Hibernating, state().Status)
	open, err := b.db.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, open, "the end of the sandbox is recorded nevertheless")

	recorded := save(then).Recorded
	require.NotZero(t, recorded)
	require.Equal(t, session.Hibernated, state().Status)
	require.Nil(t, state().Sandbox)
	before := b.events(t)
	require.NotZero(t, save(then).Recorded, "the answer of the attempt before may have been lost")
	require.Equal(t, before, b.events(t))
}

func TestFailedSnapshotCreatesNoBundle(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	codes := []driver.Code{driver.Unavailable, driver.Timeout, driver.Throttled}
	b.driver.set(func(f *faulty) {
		f.snapshot = func(id string) error {
			if len(codes) == 0 {
				return driver.Errorf(driver.Invalid, "snapshot", id, "too large")
			}
			code := codes[0]
			codes = codes[1:]
			return driver.Errorf(code, "snapshot", id, "injected")
		}
	})
	for len(codes) > 0 {
		_, err := b.save(ready)
		requirePassing(t, err)
	}
	_, err := b.save(ready)
	requireType(t, activities.Refused, err)
	_, err = b.db.BundleHead(b.ctx, b.id)
	require.Equal(t, failure.NoBundle, failure.CodeOf(err))
	require.True(t, b.running(t, ready.SandboxID), "an unsaved sandbox is not released")
}

func TestUnresolvedSnapshotCreatesNoBundle(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	for _, code := range []driver.Code{driver.Gone, driver.Unavailable} {
		b.driver.set(func(f *faulty) {
			f.imageExists = func(id string) error { return driver.Errorf(code, "look up image", id, "injected") }
		})
		_, err := b.save(ready)
		requirePassing(t, err)
		_, err = b.db.BundleHead(b.ctx, b.id)
		require.Equal(t, failure.NoBundle, failure.CodeOf(err))
	}
	b.driver.repair()
	saved, err := b.save(ready)
	require.NoError(t, err)
	require.True(t, saved.Verified)
}

func TestSandboxThatDiesDuringSaveIsLost(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(b *harness, s activities.SandboxReady){
		"before":    func(b *harness, s activities.SandboxReady) { b.memory.Kill(s.SandboxID, 1) },
		"forgotten": func(b *harness, s activities.SandboxReady) { b.memory.Forget(s.SandboxID) },
		"at the seal": func(b *harness, s activities.SandboxReady) {
			b.driver.exec = func(driver.ExecRequest) error { b.memory.Kill(s.SandboxID, 1); return nil }
		},
		"at the snapshot": func(b *harness, s activities.SandboxReady) {
			b.driver.snapshot = func(string) error {
				b.memory.Kill(s.SandboxID, 1)
				return driver.Errorf(driver.Unavailable, "snapshot", s.SandboxID, "no answer")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			ready := b.create(t)
			die(b, ready)
			_, err := b.save(ready)
			requireType(t, activities.SandboxLost, err)
			_, err = b.db.BundleHead(b.ctx, b.id)
			require.Equal(t, failure.NoBundle, failure.CodeOf(err))
		})
	}
}

// remember stores a transcript as turns do.
func (b *harness) remember(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, b.db.TranscriptAppend(b.ctx, []transcript.Segment{{
		SessionID: b.id, Path: "/root/memory.jsonl", Version: 1, Data: []byte(text),
	}}))
}

func TestRescueUsesFinalFiles(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.remember(t, "what was said")
	b.memory.Kill(ready.SandboxID, 1)
	first, err := b.rescue(ready)
	require.NoError(t, err)
	require.False(t, first.Verified)
	second, err := b.rescue(ready)
	require.NoError(t, err)
	require.Equal(t, first, second)
	head := b.head(t)
	require.NotEmpty(t, head.SnapshotID)
	require.Len(t, head.Manifest.AgentFiles, 1)
	exists, err := b.provider.ImageExists(b.ctx, head.SnapshotID)
	require.NoError(t, err)
	require.True(t, exists)

	restored, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Unverified, restored.Receipt.Kind, "it matches, but was never checked as a whole")
}

// TestRescueSavesRunningSandbox rescues a sandbox that was reported lost by mistake.
func TestRescueSavesRunningSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.say(t, ready, "my name is Robin\nwrite notes: kept")
	saved, err := b.rescue(ready)
	require.NoError(t, err)
	require.True(t, saved.Verified)
	b.terminate(t, ready)
	restored, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, restored.Receipt.Kind)
	require.Equal(t, "kept", b.shell(t, restored.SandboxID, "cat /workspace/notes"))
}

func TestRescueFallsBackToPreviousBundle(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	first := b.create(t)
	_, err := b.save(first)
	require.NoError(t, err)
	before := b.head(t)
	b.terminate(t, first)
	second, err := b.restore(2)
	require.NoError(t, err)
	b.memory.Forget(second.SandboxID)
	b.remember(t, "said since")
	saved, err := b.rescue(second)
	require.NoError(t, err)
	require.False(t, saved.Verified)
	head := b.head(t)
	require.NotEqual(t, before.ID, head.ID)
	require.Equal(t, before.SnapshotID, head.SnapshotID)
	require.Equal(t, before.ID, head.ParentID)
	require.EqualValues(t, 2, head.Generation)
	require.Len(t, head.Manifest.AgentFiles, 1, "with the transcript stored since then")
}

func TestRescueWithTranscriptsAlone(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.memory.Forget(ready.SandboxID)
	b.remember(t, "all that is left")
	saved, err := b.rescue(ready)
	require.NoError(t, err)
	require.False(t, saved.Verified)
	require.Empty(t, b.head(t).SnapshotID)
}

func TestRescueWithoutDataCreatesNoBundle(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.memory.Forget(ready.SandboxID)
	for range 2 {
		saved, err := b.rescue(ready)
		require.NoError(t, err)
		require.Empty(t, saved.BundleID)
	}
	_, err := b.db.BundleHead(b.ctx, b.id)
	require.Equal(t, failure.NoBundle, failure.CodeOf(err))
}
