package activities_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asleep creates a session that has had a turn and was saved, without a sandbox. atSnapshot, if not
// nil, is called when everything is sealed.
func asleep(t *testing.T, atSnapshot func(b *harness, sandboxID string) error) *harness {
	t.Helper()
	b := setup(t)
	ready := b.create(t)
	b.say(t, ready, "my name is Robin\nwrite notes: kept")
	if atSnapshot != nil {
		b.driver.set(func(f *faulty) {
			f.snapshot = func(id string) error { return atSnapshot(b, id) }
		})
	}
	saved, err := b.save(ready)
	require.NoError(t, err)
	require.True(t, saved.Verified)
	b.driver.repair()
	b.terminate(t, ready)
	require.False(t, b.running(t, ready.SandboxID))
	return b
}

// hibernate creates the first sandbox of a session and saves it without a turn.
func (b *harness) hibernate(t *testing.T) activities.Saved {
	t.Helper()
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.transit(t, session.EventHibernate)
	saved, err := b.save(ready)
	require.NoError(t, err)
	b.terminate(t, ready)
	b.transit(t, session.EventSaved)
	return saved
}

func TestMatchingRestoreIsFull(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	first, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{Kind: receipt.Full, Missing: []string{}}, *first.Receipt)
	second, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, "kept", b.shell(t, first.SandboxID, "cat /workspace/notes"))
	answer := b.say(t, first, "recall")
	require.Contains(t, answer, "2 prompts")
	require.Contains(t, answer, "my name is Robin")
}

// TestRestoreRecordsTransition checks that the state of the sandbox, the proof of the bundle and
// the status of the session are recorded together.
func TestRestoreRecordsTransition(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	saved := b.hibernate(t)
	b.transit(t, session.EventWake)
	then := session.Transition{
		SessionID: b.id, No: 5, From: session.Restoring, To: session.Running, Event: session.EventReady,
		Reason: session.ReasonPrompt, Generation: 1,
	}
	restore := func(then session.Transition) (activities.SandboxReady, error) {
		return do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 2, Then: &then})
	}
	stale := then
	stale.No++
	unrecorded, err := restore(stale)
	require.NoError(t, err)
	require.Zero(t, unrecorded.Recorded, "the workflow learns why when it records the transition itself")
	row := func() session.SandboxRow {
		rows, err := b.db.SandboxesOpen(b.ctx, b.id)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0]
	}
	require.NotZero(t, row().ReadyAt, "the sandbox is recorded nevertheless")
	require.Equal(t, session.Restoring, row().Status)

	ready, err := restore(then)
	require.NoError(t, err)
	require.NotZero(t, ready.Recorded)
	require.Equal(t, unrecorded.SandboxID, ready.SandboxID)
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.Running, s.Status)
	require.Equal(t, session.ReasonPrompt, s.StatusReason)
	require.Equal(t, ready.Receipt, s.Receipt)
	require.Equal(t, session.SandboxReady, s.Sandbox.Status)
	var proved bool
	b.query(t, &proved, "SELECT proved_at IS NOT NULL FROM bundles WHERE id = $1", saved.BundleID)
	require.True(t, proved)

	// The answer of the previous attempt may have been lost. Its sandbox is not saved, unlike one
	// with unsaved work.
	before, execs := b.events(t), len(b.driver.argvs())
	again, err := restore(then)
	require.NoError(t, err)
	require.NotZero(t, again.Recorded)
	again.Recorded = ready.Recorded
	require.Equal(t, ready, again)
	require.Equal(t, before, b.events(t))
	require.Len(t, b.driver.argvs(), execs, "nothing is asked of the sandbox again")

	b.transit(t, session.EventHibernate)
	_, err = restore(then)
	requireType(t, activities.Fenced, err)
}

// TestSnapshotOfAnotherBuildIsRestored checks that sessions wake after a deploy that changes the
// protocol between worker and runner.
func TestSnapshotOfAnotherBuildIsRestored(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]string{"older": "older", "unknown": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := asleep(t, func(b *harness, id string) error {
				script := `rm /overwinter/bin/overwinter-runner; printf '#!/bin/sh\nexit 64\n' > /overwinter/bin/overwinter-runner; chmod 755 /overwinter/bin/overwinter-runner`
				_, err := b.provider.Open(id).Run(b.ctx, runOf(script))
				return err
			})
			require.NotEmpty(t, b.head(t).Manifest.Runner)
			b.sql(t, `UPDATE bundles SET manifest = jsonb_set(manifest::jsonb, '{runner}', to_jsonb($1::text))::json WHERE session_id = $2`, build, b.id)
			first, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, receipt.Full, first.Receipt.Kind)
			second, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, first, second)
			require.Contains(t, b.say(t, first, "recall"), "my name is Robin")

			// The new bundle has the current runner.
			saved, err := b.save(first)
			require.NoError(t, err)
			require.True(t, saved.Verified)
			b.terminate(t, first)
			execs := len(b.driver.argvs())
			third, err := b.restore(3)
			require.NoError(t, err)
			require.Equal(t, receipt.Full, third.Receipt.Kind)
			for _, argv := range b.driver.argvs()[execs:] {
				require.NotContains(t, argv, "replace-runner")
			}
		})
	}
}

func TestChangedAgentFileIsReplacedAndRestoreIsPartial(t *testing.T) {
	t.Parallel()
	b := asleep(t, func(b *harness, id string) error {
		_, err := b.provider.Open(id).Run(b.ctx, runOf(`for f in $(find /root/.overwinter-demo -name '*.jsonl'); do echo '{}' > $f; done`))
		return err
	})
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.NotEqual(t, receipt.Full, ready.Receipt.Kind)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin", "the stored transcript took its place")
}

func TestDeletedSnapshotKeepsAgentMemory(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	require.NoError(t, b.provider.DeleteImage(b.ctx, b.head(t).SnapshotID))
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{Kind: receipt.Partial, Missing: []string{"workspace"}}, *ready.Receipt)
	require.Equal(t, "gone\n", b.shell(t, ready.SandboxID, "test -e /workspace/notes || echo gone"))
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin")
}

func TestSandboxIsResumedAfterFailedSave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(t)
	b.say(t, first, "my name is Robin")
	b.driver.set(func(f *faulty) {
		f.snapshot = func(id string) error { return driver.Errorf(driver.Invalid, "snapshot", id, "injected") }
	})
	_, err := b.save(first)
	requireType(t, activities.Refused, err)
	b.driver.repair()
	again, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, first.SandboxID, again.SandboxID)
	require.EqualValues(t, 1, again.Generation)
	require.Nil(t, again.Receipt, "nothing was restored")
	require.Contains(t, b.say(t, again, "recall"), "my name is Robin", "the sealed runner works again")
	saved, err := b.save(again)
	require.NoError(t, err)
	require.True(t, saved.Verified)
}

// TestSavedSandboxIsNotResumed checks that a saved sandbox is not reused: its generation already
// has its bundle, so later work would never be saved.
func TestSavedSandboxIsNotResumed(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	first := b.create(t)
	_, err := b.save(first)
	require.NoError(t, err)
	again, err := b.restore(2)
	require.NoError(t, err)
	require.EqualValues(t, 2, again.Generation)
	require.NotEqual(t, first.SandboxID, again.SandboxID)
	require.False(t, b.running(t, first.SandboxID))
}

// working creates a session whose newest bundle is of generation 1, and that has worked in
// generation 2 since.
func working(t *testing.T) (*harness, activities.SandboxReady) {
	t.Helper()
	b := asleep(t, nil)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, ready.Receipt.Kind)
	b.say(t, ready, "my dog is Rex\nwrite later: unsaved")
	return b, ready
}

// TestRunningSandboxSurvivesOneFailedCall uses a sandbox with work that no bundle covers.
func TestRunningSandboxSurvivesOneFailedCall(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	b.driver.set(func(f *faulty) {
		f.exec = func(r driver.ExecRequest) error {
			if has("ping")(r) {
				return driver.Errorf(driver.Unavailable, "exec", "", "injected")
			}
			return nil
		}
	})
	for range 3 {
		_, err := b.restore(3)
		requirePassing(t, err)
		require.True(t, b.running(t, second.SandboxID))
	}
	b.driver.repair()
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, second.SandboxID, ready.SandboxID)
	require.Nil(t, ready.Receipt, "nothing was restored")
	require.Equal(t, "unsaved", b.shell(t, ready.SandboxID, "cat /workspace/later"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
}

// TestSandboxWithFrozenRunnerIsSavedBeforeTermination checks that the files are saved without the
// runner.
func TestSandboxWithFrozenRunnerIsSavedBeforeTermination(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	b.transit(t, session.EventHibernate)
	b.recover(t)
	b.shell(t, second.SandboxID, `for p in /proc/[0-9]*; do
		case "$(tr '\0' ' ' 2>/dev/null <$p/cmdline)" in "/overwinter/bin/overwinter-runner serve"*) kill -STOP ${p#/proc/};; esac; done`)
	_, err := b.restore(3)
	requirePassing(t, err)
	require.True(t, b.running(t, second.SandboxID), "it may answer yet")
	b.sql(t, `UPDATE session_transitions SET at = at - interval '1 minute'`)
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.NotEqual(t, second.SandboxID, ready.SandboxID)
	require.False(t, b.running(t, second.SandboxID))
	require.Equal(t, receipt.Unverified, ready.Receipt.Kind, "%+v", ready.Receipt)
	require.Equal(t, "unsaved", b.shell(t, ready.SandboxID, "cat /workspace/later"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
	saved, err := b.save(ready)
	require.NoError(t, err)
	require.True(t, saved.Verified)
}

// TestOnlyUnsavedSandboxIsSavedInError checks that, of the sandboxes of a session in error, only
// the one that it has worked in is saved, and only once. The sandbox of an incomplete restore is
// not a state of the session.
func TestOnlyUnsavedSandboxIsSavedInError(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	request := b.saveRequest(second)
	request.Unsaved, request.Generation = true, 3
	_, err := do(b, attempt{}, b.control.SaveBundle, request)
	requirePassing(t, err)
	require.True(t, b.running(t, second.SandboxID))
	request.Generation = second.Generation
	saved, err := do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	require.True(t, saved.Verified)
	require.Equal(t, second.Generation, b.head(t).Generation)
	request.BundleID = session.NewID(session.BundlePrefix)
	saved, err = do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	require.Empty(t, saved.BundleID)
	require.Equal(t, second.Generation, b.head(t).Generation)
}

// TestFencedSandboxIsSavedBeforeTermination reserves the next generation, as a worker of the
// previous version may do.
func TestFencedSandboxIsSavedBeforeTermination(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	require.NoError(t, b.db.GenerationReserve(b.ctx, b.id, 3, "any"))
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.EqualValues(t, 3, ready.Generation)
	require.False(t, b.running(t, second.SandboxID))
	require.Equal(t, receipt.Unverified, ready.Receipt.Kind)
	require.Equal(t, "unsaved", b.shell(t, ready.SandboxID, "cat /workspace/later"))
	saved, err := b.save(ready)
	require.NoError(t, err)
	require.True(t, saved.Verified, "generation 3 gets its own bundle")
	require.Equal(t, saved.BundleID, b.head(t).ID)
}

// TestUnsavedWorkOfDeadSandboxIsRescued terminates a sandbox with unsaved work, as may happen while
// its session is in error.
func TestUnsavedWorkOfDeadSandboxIsRescued(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	require.NoError(t, b.provider.Open(second.SandboxID).Terminate(b.ctx))
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Unverified, ready.Receipt.Kind)
	require.Equal(t, "unsaved", b.shell(t, ready.SandboxID, "cat /workspace/later"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
}

// TestLostUnsavedWorkIsReported restores without an exit snapshot: the files are those of the
// previous bundle, and the memory is the stored one.
func TestLostUnsavedWorkIsReported(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	before := b.head(t)
	sb := b.provider.Open(second.SandboxID)
	require.NoError(t, sb.Terminate(b.ctx))
	exit, err := sb.ExitSnapshot(b.ctx)
	require.NoError(t, err)
	require.NoError(t, b.provider.DeleteImage(b.ctx, exit))
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Partial, ready.Receipt.Kind)
	require.Equal(t, []string{"workspace changes since " + before.CreatedAt.Format(time.RFC3339)}, ready.Receipt.Missing)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
	answer := b.say(t, ready, "recall")
	require.Contains(t, answer, "my name is Robin")
	require.Contains(t, answer, "3 prompts", "the stored transcript is newer than the snapshot")
	files, err := postgrestest.Transcripts(b.ctx, b.db, b.id)
	require.NoError(t, err)
	require.Contains(t, string(files[0].Data), "my dog is Rex")
}

// TestNewerTranscriptInSnapshotIsKept loses a worker before it stores the end of a transcript.
func TestNewerTranscriptInSnapshotIsKept(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	find := "find /root/.overwinter-demo -name '*.jsonl'"
	b.shell(t, second.SandboxID, "echo '{}' >> $("+find+")")
	require.NoError(t, b.provider.Open(second.SandboxID).Terminate(b.ctx))
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Unverified, ready.Receipt.Kind)
	require.Equal(t, "{}\n", b.shell(t, ready.SandboxID, "tail -n 1 $("+find+")"))
}

// TestTwoVersionsOfTranscriptAreBothKept uses two versions of which neither continues the other.
func TestTwoVersionsOfTranscriptAreBothKept(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	find := "find /root/.overwinter-demo -name '*.jsonl'"
	b.shell(t, second.SandboxID, "f=$("+find+"); { echo '{}'; cat $f; } > /tmp/new && cat /tmp/new > $f")
	require.NoError(t, b.provider.Open(second.SandboxID).Terminate(b.ctx))
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Unverified, ready.Receipt.Kind)
	require.Len(t, ready.Receipt.Unchecked, 2, "the workspace was not sealed either: %v", ready.Receipt.Unchecked)
	require.Contains(t, ready.Receipt.Unchecked[0], ".before-restore-3")
	require.Equal(t, "{}\n", b.shell(t, ready.SandboxID, "head -n 1 /root/.overwinter-demo/*.before-restore-3 || head -n 1 $(find /root -name '*.before-restore-3')"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
}

// damage removes the topmost layer of an image from the disk of the local Modal.
func damage(t *testing.T, image string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(layerOf(t, image)))
}

// layerOf returns the topmost layer of an image on the disk of the local Modal.
func layerOf(t *testing.T, image string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(modalDir, "records", "images", image+".*"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	data, err := os.ReadFile(names[0])
	require.NoError(t, err)
	var record struct{ Root struct{ Layers []string } }
	require.NoError(t, json.Unmarshal(data, &record))
	return filepath.Join(modalDir, "layers", record.Root.Layers[0])
}

// TestReceiptNamesChangedWorkspaceFiles tampers with the snapshot's layer on disk, in a
// workspace without a repository.
func TestReceiptNamesChangedWorkspaceFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper  func(workspace string) error
		missing []string
	}{
		"overwritten": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes"), []byte("tampered"), 0o600) }, []string{"/workspace/notes (changed)"}},
		"removed":     {func(dir string) error { return os.Remove(filepath.Join(dir, "notes")) }, []string{"/workspace/notes"}},
		"added":       {func(dir string) error { return os.WriteFile(filepath.Join(dir, "planted"), nil, 0o600) }, []string{"/workspace/planted (added)"}},
		"same size": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "notes"), []byte("KEPT"), 0o600)
		}, []string{"/workspace/notes (changed)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := asleep(t, nil)
			require.NoError(t, c.tamper(filepath.Join(layerOf(t, b.head(t).SnapshotID), "workspace")))
			ready, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, receipt.Receipt{Kind: receipt.Partial, Missing: c.missing}, *ready.Receipt)
			again, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, ready, again)
		})
	}
}

// TestBundleOfPreviousVersionIsUnverified restores a bundle without an index of its workspace.
func TestBundleOfPreviousVersionIsUnverified(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	b.sql(t, `UPDATE bundles SET manifest = (manifest::jsonb - 'tree')::json WHERE session_id = $1`, b.id)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{
		Kind: receipt.Unverified, Missing: []string{}, Unchecked: []string{"workspace: the bundle has no index of it"},
	}, *ready.Receipt)
}

// TestWorkspaceBeyondBoundsIsUnverified checks that the manifest has the reason why the workspace
// is not described.
func TestWorkspaceBeyondBoundsIsUnverified(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(t)
	b.say(t, first, "my name is Robin")
	b.shell(t, first.SandboxID, `cd /workspace; for n in $(seq 402); do mkdir d && cd d || exit 1; done`)
	saved, err := b.save(first)
	require.NoError(t, err)
	require.True(t, saved.Verified)
	b.terminate(t, first)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{
		Kind: receipt.Unverified, Missing: []string{}, Unchecked: []string{"workspace: deeper than 400 directories"},
	}, *ready.Receipt)
}

func TestDamagedSnapshotFallsBackToStoredTranscripts(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	lost := b.head(t).SnapshotID
	damage(t, lost)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{Kind: receipt.Partial, Missing: []string{"workspace"}}, *ready.Receipt)
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin")

	// A later, proven bundle does not lead to the deletion of the old snapshot yet.
	_, err = b.save(ready)
	require.NoError(t, err)
	b.terminate(t, ready)
	third, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, third.Receipt.Kind)
	_, err = b.db.SnapshotsAudit(b.ctx, "", 100)
	require.NoError(t, err)
	unneeded, err := b.db.SnapshotsCondemn(b.ctx, 100)
	require.NoError(t, err)
	require.NotContains(t, unneeded, lost)
	b.sql(t, `UPDATE snapshots SET kept_until = now() - interval '1 second' WHERE id = $1`, lost)
	_, err = b.db.SnapshotsAudit(b.ctx, "", 100)
	require.NoError(t, err)
	unneeded, err = b.db.SnapshotsCondemn(b.ctx, 100)
	require.NoError(t, err)
	require.Contains(t, unneeded, lost)
}

func TestDamagedSnapshotFallsBackToOlderOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(t)
	b.say(t, first, "my name is Robin\nwrite notes: kept")
	request := b.saveRequest(first)
	request.Checkpoint = true
	_, err := do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	older := b.head(t)
	b.say(t, first, "my dog is Rex\nwrite later: lost")
	_, err = b.save(first)
	require.NoError(t, err)
	b.terminate(t, first)
	require.NotEqual(t, older.SnapshotID, b.head(t).SnapshotID)
	damage(t, b.head(t).SnapshotID)

	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Partial, ready.Receipt.Kind)
	require.Equal(t, []string{"workspace changes since " + older.CreatedAt.Format(time.RFC3339)}, ready.Receipt.Missing)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes; cat /workspace/later 2>/dev/null || :"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
}

// TestSnapshotWithoutWorkingRunnerCountsAsDamaged uses an image from which sandboxes start, but in
// which no runner answers.
func TestSnapshotWithoutWorkingRunnerCountsAsDamaged(t *testing.T) {
	t.Parallel()
	b := asleep(t, func(b *harness, id string) error {
		script := `rm /overwinter/bin/overwinter-runner; printf '#!/bin/sh\n[ "$1" = serve ] && exec sleep 1000; exit 3\n' > /overwinter/bin/overwinter-runner; chmod 755 /overwinter/bin/overwinter-runner`
		_, err := b.provider.Open(id).Run(b.ctx, runOf(script))
		return err
	})
	for generation := int64(2); generation < 4; generation++ {
		_, err := b.restore(generation)
		requireType(t, activities.GenerationUnusable, err)
	}
	ready, err := b.restore(4)
	require.NoError(t, err)
	require.Equal(t, receipt.Receipt{Kind: receipt.Partial, Missing: []string{"workspace"}}, *ready.Receipt)
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin")
}

// TestSingleSnapshotNotFoundIsRetried checks that a single "not found" is not final, because a
// replica may lag or restart.
func TestSingleSnapshotNotFoundIsRetried(t *testing.T) {
	t.Parallel()
	for name, refusals := range map[string]int{"once": 1, "by every lookup": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := asleep(t, nil)
			snapshot := b.head(t).SnapshotID
			b.driver.set(func(f *faulty) {
				f.imageExists = func(id string) error {
					if id != snapshot || refusals == 0 {
						return nil
					}
					refusals--
					return driver.Errorf(driver.Gone, "look up image", id, "injected")
				}
			})
			ready, err := b.restore(2)
			require.NoError(t, err, "a create is asked as well")
			require.Equal(t, receipt.Full, ready.Receipt.Kind)
			require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
		})
	}
}

// TestProviderWithoutAnyImageIsRejected checks that nothing of the session is discarded.
func TestProviderWithoutAnyImageIsRejected(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	head := b.head(t)
	b.driver.set(func(f *faulty) {
		f.imageExists = func(id string) error { return driver.Errorf(driver.Gone, "look up image", id, "injected") }
	})
	_, err := b.restore(2)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "check the provider's account and environment")
	require.Equal(t, head, b.head(t))
	b.driver.repair()
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, ready.Receipt.Kind)
}

// TestRestoreMayRequestFreshSandbox requests a fresh sandbox, as environment/terminate does for a
// session in error.
func TestRestoreMayRequestFreshSandbox(t *testing.T) {
	t.Parallel()
	b, second := working(t)
	ready, err := do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 3, Fresh: true})
	require.NoError(t, err)
	require.False(t, b.running(t, second.SandboxID))
	require.Equal(t, receipt.Receipt{Kind: receipt.Partial, Missing: []string{"workspace"}}, *ready.Receipt)
	require.Equal(t, "gone\n", b.shell(t, ready.SandboxID, "test -e /workspace/notes || echo gone"))
	require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
}

// TestCommandsOfWake counts the commands of the runner in a wake. Each is a process in the sandbox
// that delays the first word of the agent.
func TestCommandsOfWake(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	for _, e := range []session.Event{session.EventHibernate, session.EventSaved, session.EventWake} {
		b.transit(t, e)
	}
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	before := len(b.driver.argvs())
	then := session.Transition{
		SessionID: b.id, No: s.TransitionNo + 1, From: session.Restoring, To: session.Running, Event: session.EventReady,
		Reason: session.ReasonPrompt, Generation: 1,
	}
	ready, err := do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 2, Then: &then})
	require.NoError(t, err)
	require.NotZero(t, ready.Recorded)
	require.Equal(t, receipt.Full, ready.Receipt.Kind)
	commands := map[string]int{}
	for _, argv := range b.driver.argvs()[before:] {
		commands[argv[1]]++
	}
	require.Equal(t, map[string]int{"attach": 1}, commands, "it waits for the runner, compares, and is the link of the prompt")
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin")
	require.Equal(t, 2, b.attaches(), "the first one was that of the turn before the session slept")
}

// TestWakeOutlivesLossOfItsLink ends the exec that compares the restored sandbox and that is to be the link of the
// prompt: first with its sandbox, then alone.
func TestWakeOutlivesLossOfItsLink(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	for _, e := range []session.Event{session.EventHibernate, session.EventSaved, session.EventWake} {
		b.transit(t, e)
	}
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	then := session.Transition{
		SessionID: b.id, No: s.TransitionNo + 1, From: session.Restoring, To: session.Running, Event: session.EventReady,
		Reason: session.ReasonPrompt, Generation: 1,
	}
	wake := func(generation int64) (activities.SandboxReady, error) {
		return do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: generation, Then: &then})
	}
	b.driver.set(func(f *faulty) {
		f.exec = func(r driver.ExecRequest) error {
			if !has("attach")(r) {
				return nil
			}
			rows, err := b.db.SandboxesOpen(b.ctx, b.id)
			if err != nil {
				return err
			}
			for _, row := range rows {
				found, err := b.provider.Find(b.ctx, b.id, row.Generation)
				if err != nil {
					return err
				}
				if err := found.Terminate(b.ctx); err != nil {
					return err
				}
			}
			return nil
		}
	})
	_, err = wake(2)
	require.Equal(t, activities.GenerationUnusable, activities.TypeOf(err), "%v", err)
	b.driver.repair()
	ready, err := wake(3)
	require.NoError(t, err)
	require.Equal(t, receipt.Full, ready.Receipt.Kind)
	b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '[r]unner attach' && kill -9 ${p#/proc/}; done; true`)
	in := b.claim(t, ready, "recall")
	_, err = b.untilFinal(t, in, b.begin(t, in))
	require.NoError(t, err)
	require.Contains(t, b.output(t, in.RunID), "my name is Robin")
}
