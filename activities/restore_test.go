package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asleep has a session that has had a turn and was saved; its sandbox is gone.
// atSnapshot, if it is given, is called when everything is sealed.
func asleep(t *testing.T, atSnapshot func(b *bundle, sandboxID string) error) *bundle {
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
	b.driver.mend()
	b.terminate(t, ready)
	require.False(t, b.running(t, ready.SandboxID))
	return b
}

func TestARestoreThatMatchesIsFull(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	first, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, session.Receipt{Kind: session.ReceiptFull, Missing: []string{}}, *first.Receipt)
	second, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, "kept", b.shell(t, first.SandboxID, "cat /workspace/notes"))
	answer := b.say(t, first, "recall")
	require.Contains(t, answer, "2 prompts")
	require.Contains(t, answer, "my name is Robin")
}

// TestASnapshotOfAnotherBuildWakes: what a deploy has changed between worker and runner must not keep
// what sleeps from waking.
func TestASnapshotOfAnotherBuildWakes(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]string{"older": "older", "unknown": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := asleep(t, func(b *bundle, id string) error {
				script := `rm /overwinter/bin/overwinter-runner; printf '#!/bin/sh\nexit 64\n' > /overwinter/bin/overwinter-runner; chmod 755 /overwinter/bin/overwinter-runner`
				_, err := b.provider.Open(id).Run(b.ctx, runOf(script))
				return err
			})
			require.NotEmpty(t, b.head(t).Manifest.Runner)
			b.sql(t, `UPDATE bundles SET manifest = jsonb_set(manifest::jsonb, '{runner}', to_jsonb($1::text))::json WHERE session_id = $2`, build, b.id)
			first, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, session.ReceiptFull, first.Receipt.Kind)
			second, err := b.restore(2)
			require.NoError(t, err)
			require.Equal(t, first, second)
			require.Contains(t, b.say(t, first, "recall"), "my name is Robin")

			// What is saved now has the runner of today.
			saved, err := b.save(first)
			require.NoError(t, err)
			require.True(t, saved.Verified)
			b.terminate(t, first)
			execs := len(b.driver.argvs())
			third, err := b.restore(3)
			require.NoError(t, err)
			require.Equal(t, session.ReceiptFull, third.Receipt.Kind)
			for _, argv := range b.driver.argvs()[execs:] {
				require.NotContains(t, argv, "replace-runner")
			}
		})
	}
}

func TestAnAgentFileThatChangedIsPutBackAndTheRestoreIsNotFull(t *testing.T) {
	t.Parallel()
	b := asleep(t, func(b *bundle, id string) error {
		_, err := b.provider.Open(id).Run(b.ctx, runOf(`for f in $(find /root/.overwinter-demo -name '*.jsonl'); do echo '{}' > $f; done`))
		return err
	})
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.NotEqual(t, session.ReceiptFull, ready.Receipt.Kind)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin", "the stored transcript took its place")
}

func TestASnapshotThatWasDeletedLeavesTheMemory(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	require.NoError(t, b.provider.DeleteImage(b.ctx, b.head(t).SnapshotID))
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, session.Receipt{Kind: session.ReceiptPartial, Missing: []string{"workspace"}}, *ready.Receipt)
	require.Equal(t, "gone\n", b.shell(t, ready.SandboxID, "test -e /workspace/notes || echo gone"))
	require.Contains(t, b.say(t, ready, "recall"), "my name is Robin")
}

func TestASandboxThatLivesAfterAFailedSaveIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(t)
	b.say(t, first, "my name is Robin")
	b.driver.set(func(f *faulty) {
		f.snapshot = func(id string) error { return driver.Errorf(driver.Invalid, "snapshot", id, "injected") }
	})
	_, err := b.save(first)
	requireType(t, activities.Refused, err)
	b.driver.mend()
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

// TestASandboxThatWasSavedIsNotTakenUpAgain: its generation has its bundle, and
// what came after would never be saved.
func TestASandboxThatWasSavedIsNotTakenUpAgain(t *testing.T) {
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

// TestARestoreThatBeganIsNotGoneBackOn: once the next generation is reserved, the
// one before it is fenced off, however alive it looks.
func TestARestoreThatBeganIsNotGoneBackOn(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	first := b.create(t)
	pings := 0
	b.driver.set(func(f *faulty) {
		f.exec = func(r driver.ExecRequest) error {
			if has("ping")(r) {
				if pings++; pings == 1 { // it looked dead for a moment
					return driver.Errorf(driver.Unavailable, "exec", "", "injected")
				}
			}
			return nil
		}
	})
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpTerminate, Code: driver.Unavailable, N: 2})
	_, err := b.restore(2)
	requirePassing(t, err)
	b.driver.mend()
	b.memory.ClearFaults()
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.EqualValues(t, 2, ready.Generation)
	require.False(t, b.running(t, first.SandboxID))
}
