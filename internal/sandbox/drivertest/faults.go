package drivertest

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

func lostCreate(t *testing.T, b *bench) {
	spec := b.spec()
	b.Faults.Lose(t, Create)
	_, _, err := b.provider.Create(b.ctx(t), spec)
	require.Error(t, err)
	list, err := driver.Collect(b.provider.List(b.ctx(t)))
	require.NoError(t, err)
	require.Len(t, list, 1, "the answer is lost, the sandbox is there")

	sb, adopted, err := b.second.Create(b.ctx(t), spec)
	require.NoError(t, err)
	b.terminateAfter(t, sb)
	require.True(t, adopted)
	require.Equal(t, list[0].ID, sb.ID())
	b.run(t, sb, b.Commands.Exit(0))
}

func lostTerminate(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.Faults.Lose(t, Terminate)
	require.Error(t, sb.Terminate(b.ctx(t)))
	require.NoError(t, sb.Terminate(b.ctx(t)))
	list, err := driver.Collect(b.provider.List(b.ctx(t)))
	require.NoError(t, err)
	require.Empty(t, list)
}

func lostSnapshot(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "x")
	b.Faults.Lose(t, Snapshot)
	_, err := sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{})
	require.Error(t, err)
	require.NotEqual(t, sandbox.Gone, sandbox.CodeOf(err))
	spec := b.spec()
	spec.Image = b.snapshot(t, sb)
	require.Equal(t, "x", b.read(t, b.create(t, spec), "/work/f"))
}

func snapshotBudget(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "x")
	b.Faults.Delay(t, Snapshot, time.Hour)
	_, err := sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{Timeout: time.Second})
	requireCode(t, sandbox.Timeout, err)
	require.Equal(t, "x", b.read(t, sb, "/work/f"))
}

// An unreachable machine is reported like a dead one.
func misled(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "x")
	b.Faults.Mislead(t, ReadFile)
	_, err := sb.ReadFile(b.ctx(t), "/work/f")
	requireCode(t, sandbox.Unavailable, err)
	require.Equal(t, "x", b.read(t, sb, "/work/f"))

	require.NoError(t, sb.Terminate(b.ctx(t)))
	_, err = sb.ReadFile(b.ctx(t), "/work/f")
	requireCode(t, sandbox.Gone, err)
}

func waitHangs(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.Faults.Delay(t, Wait, time.Hour)
	p, err := sb.Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Cat()})
	require.NoError(t, err)
	require.NoError(t, b.second.Open(sb.ID()).Terminate(b.ctx(t)))
	_, err = p.Wait(b.ctx(t))
	requireCode(t, sandbox.Gone, err)
	_, err = io.ReadAll(p.Stdout)
	requireCode(t, sandbox.Gone, err)
	require.NoError(t, p.Close())
}

func lostBuilder(t *testing.T, b *bench) {
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{})
	b.Faults.Lose(t, Create)
	_, err := images.Prepare(b.ctx(t), b.recipe(t))
	require.Error(t, err)
	b.requireNoSandbox(t)
}
