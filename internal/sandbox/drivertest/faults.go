package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

func (b *bench) needFaults(t *testing.T) {
	if b.Faults == nil {
		t.Skip("this provider can not be broken on purpose")
	}
}

func lostCreate(t *testing.T, b *bench) {
	b.needFaults(t)
	spec := b.spec()
	b.Faults.Lose(t, Create)
	_, _, err := b.provider.Create(b.ctx(t), spec)
	require.Error(t, err)
	list, err := b.provider.List(b.ctx(t))
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
	b.needFaults(t)
	sb := b.sandbox(t)
	b.Faults.Lose(t, Terminate)
	require.Error(t, sb.Terminate(b.ctx(t)))
	require.NoError(t, sb.Terminate(b.ctx(t)))
	list, err := b.provider.List(b.ctx(t))
	require.NoError(t, err)
	require.Empty(t, list)
}

func lostSnapshot(t *testing.T, b *bench) {
	b.needFaults(t)
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
	b.needFaults(t)
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "x")
	b.Faults.Delay(t, Snapshot, 5*time.Second)
	began := time.Now()
	_, err := sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{Timeout: time.Second})
	requireCode(t, sandbox.Timeout, err)
	require.Less(t, time.Since(began), 4*time.Second)
	require.Equal(t, "x", b.read(t, sb, "/work/f"))
}

func callsEnd(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	ctx, cancel := context.WithCancel(b.ctx(t))
	cancel()
	_, _, err := b.provider.Create(ctx, b.spec())
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.provider.List(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = sb.Exec(ctx, sandbox.ExecSpec{Argv: b.Commands.Exit(0)})
	require.ErrorIs(t, err, context.Canceled)
	_, err = sb.ReadFile(ctx, "/tmp/f")
	require.ErrorIs(t, err, context.Canceled)
	_, err = sb.Snapshot(ctx, sandbox.SnapshotSpec{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = sb.Poll(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, sb.Terminate(ctx), context.Canceled)
	require.Equal(t, sandbox.Unavailable, sandbox.CodeOf(err))

	st, err := sb.Poll(b.ctx(t))
	require.NoError(t, err)
	require.True(t, st.Running)
}
