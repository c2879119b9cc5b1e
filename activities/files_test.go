package activities_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// fileEvents returns the reported changes, as "CHANGE PATH". A file that is read while it is
// written is reported twice, in its first and in its final state; both count as one change.
func (b *harness) fileEvents(t *testing.T) []string {
	t.Helper()
	var out []string
	last := ""
	for _, e := range b.events(t) {
		if e.Type == "file" {
			var d struct{ Path, Change string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			if d.Change != "modified" || d.Path != last {
				out = append(out, d.Change+" "+d.Path)
			}
			last = d.Path
		}
	}
	return out
}

func (b *harness) fileText(t *testing.T, path string) string {
	t.Helper()
	f, err := b.db.FileGet(b.ctx, b.id, path)
	require.NoError(t, err)
	return string(f.Data)
}

// withoutDisk discards a sandbox with its disk, and creates the next one.
func (b *harness) withoutDisk(t *testing.T, ready activities.SandboxReady) activities.SandboxReady {
	t.Helper()
	require.NoError(t, b.provider.Open(ready.SandboxID).Terminate(b.ctx))
	b.terminate(t, ready)
	fresh, err := do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 2})
	require.NoError(t, err)
	return fresh
}

func TestTurnStoresFilesOfAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.shell(t, ready.SandboxID, "echo there > /workspace/there")
	_, err := b.turn(b.claim(t, ready, "write a.txt: one\nwrite a.txt: two"))
	require.NoError(t, err)
	require.Equal(t, []string{"created a.txt"}, b.fileEvents(t)[:1])
	require.Equal(t, "two", b.fileText(t, "a.txt"))
	require.Equal(t, "there\n", b.fileText(t, "there"))
	events := b.events(t)
	require.NotEqual(t, "file", events[len(events)-1].Type, "files belong to the turn")
	diff, err := b.db.DiffGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, 1, diff.FilesChanged)

	// Changes between two turns are found by the next turn, and by a seal.
	reported := len(b.fileEvents(t))
	b.shell(t, ready.SandboxID, "rm /workspace/there")
	_, err = b.turn(b.claim(t, ready, "hello"))
	require.NoError(t, err)
	require.Equal(t, []string{"deleted there"}, b.fileEvents(t)[reported:])
	b.shell(t, ready.SandboxID, "echo late > /workspace/late")
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepKnown {
			return errors.New("the files that are stored are listed, though the runner knows them")
		}
		return nil
	}, nil)
	_, err = b.save(ready)
	require.NoError(t, err)
	b.steps.set(nil, nil)
	require.Equal(t, []string{"deleted there", "created late"}, b.fileEvents(t)[reported:])
	require.Equal(t, "late\n", b.fileText(t, "late"))
	diff, err = b.db.DiffGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, 3, diff.FilesChanged)

	// It wakes and continues, and reports no change that is stored.
	b.terminate(t, ready)
	woken, err := b.restore(2)
	require.NoError(t, err)
	_, err = b.turn(b.claim(t, woken, "write a.txt: three"))
	require.NoError(t, err)
	require.Equal(t, []string{"deleted there", "created late", "modified a.txt"}, b.fileEvents(t)[reported:])
}

func TestFilesOfLostCommitAreReportedByNextAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "write a.txt: one\nsleep 1s\nwrite b.txt: two")
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepFiles {
			return errInjected
		}
		return nil
	}, nil)
	_, err := b.turn(in)
	require.ErrorContains(t, err, errInjected.Error())
	require.Empty(t, b.fileEvents(t))
	b.steps.set(nil, nil)
	_, err = b.turn(in)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"created a.txt", "created b.txt"}, b.fileEvents(t))
}

func TestFreshSandboxIsComparedWithStoredFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	_, err := b.turn(b.claim(t, ready, "write a.txt: one\nwrite b.txt: two"))
	require.NoError(t, err)
	reported := len(b.fileEvents(t))
	fresh := b.withoutDisk(t, ready)
	_, err = b.turn(b.claim(t, fresh, "write b.txt: two"))
	require.NoError(t, err)
	require.Subset(t, b.fileEvents(t)[reported:], []string{"deleted a.txt"})
	require.Equal(t, "two", b.fileText(t, "b.txt"))
	_, err = b.db.FileGet(b.ctx, b.id, "a.txt")
	require.Equal(t, failure.NoFile, failure.CodeOf(err))
}

// TestSealOfFreshSandboxIsComparedWithStoredFiles seals a sandbox whose runner never received
// the list of stored files.
func TestSealOfFreshSandboxIsComparedWithStoredFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	_, err := b.turn(b.claim(t, ready, "write a.txt: one\nwrite b.txt: two"))
	require.NoError(t, err)
	reported := len(b.fileEvents(t))
	fresh := b.withoutDisk(t, ready)
	b.shell(t, fresh.SandboxID, "echo -n two > /workspace/b.txt; echo new > /workspace/c.txt")
	_, err = b.save(fresh)
	require.NoError(t, err)
	require.Subset(t, b.fileEvents(t)[reported:], []string{"deleted a.txt", "created c.txt"})
	require.NotContains(t, b.fileEvents(t)[reported:], "created b.txt")
	require.Equal(t, "two", b.fileText(t, "b.txt"))
}
