package drivertest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func createsAndLists(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Generation = 7
	sb := b.create(t, spec)
	st, err := sb.Poll(b.ctx(t))
	require.NoError(t, err)
	require.Equal(t, sandbox.Status{Running: true}, st)

	list, err := driver.Collect(b.provider.List(b.ctx(t)))
	require.NoError(t, err)
	require.Len(t, list, 1)
	l := list[0]
	require.Equal(t, sb.ID(), l.ID)
	require.Equal(t, spec.Session, l.Session)
	require.Equal(t, int64(7), l.Generation)
	require.Empty(t, l.Role)
	require.Equal(t, spec.Session, l.Tags[sandbox.TagSession])
	require.Equal(t, strconv.Itoa(7), l.Tags[sandbox.TagGeneration])
	if l.Name != "" { // a provider need not report it
		require.Equal(t, session.SandboxName(spec.Session, 7), l.Name)
	}

	require.NoError(t, sb.Terminate(b.ctx(t)))
	list, err = driver.Collect(b.provider.List(b.ctx(t)))
	require.NoError(t, err)
	require.Empty(t, list)
}

func listsOnlyTheInstallation(t *testing.T, b *bench) {
	const n = 5
	ours := map[string]bool{}
	for range n {
		ours[b.sandbox(t).ID()] = true
	}
	other, _, err := b.foreign.Create(b.ctx(t), b.spec())
	require.NoError(t, err)
	b.terminateAfter(t, other)

	list, err := driver.Collect(b.second.List(b.ctx(t)))
	require.NoError(t, err)
	require.Len(t, list, n)
	for _, l := range list {
		require.True(t, ours[l.ID], "listed %s", l.ID)
	}
	list, err = driver.Collect(b.foreign.List(b.ctx(t)))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, other.ID(), list[0].ID)
}

func adopts(t *testing.T, b *bench) {
	spec := b.spec()
	first := b.create(t, spec)
	again, adopted, err := b.second.Create(b.ctx(t), spec)
	require.NoError(t, err)
	require.True(t, adopted)
	require.Equal(t, first.ID(), again.ID())

	spec.Generation++
	next := b.create(t, spec)
	require.NotEqual(t, first.ID(), next.ID())
}

func refuses(t *testing.T, b *bench) {
	spec := b.spec()
	b.create(t, spec)

	other := spec
	other.Image = b.OtherImage
	_, _, err := b.provider.Create(b.ctx(t), other)
	requireCode(t, sandbox.NameTaken, err)
	require.ErrorIs(t, err, sandbox.ErrNameForeign)

	_, _, err = b.foreign.Create(b.ctx(t), spec)
	requireCode(t, sandbox.NameTaken, err)
	require.ErrorIs(t, err, sandbox.ErrNameForeign)
}

func nameIsFreed(t *testing.T, b *bench) {
	spec := b.spec()
	first := b.create(t, spec)
	require.NoError(t, first.Terminate(b.ctx(t)))
	_, err := b.Driver.Lookup(b.ctx(t), session.SandboxName(spec.Session, spec.Generation))
	requireCode(t, driver.Gone, err)
	require.NotEqual(t, first.ID(), b.create(t, spec).ID())
}

func unknownImage(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Image = "im-01ARZ3NDEKTSV4RRFFQ69G5FAV"
	_, _, err := b.provider.Create(b.ctx(t), spec)
	requireCode(t, sandbox.Gone, err)
	ok, err := b.provider.ImageExists(b.ctx(t), spec.Image)
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, b.provider.DeleteImage(b.ctx(t), spec.Image))
}

func firstProcess(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Command = b.Commands.Exit(3)
	require.Equal(t, sandbox.Status{ExitCode: 3}, b.ends(t, b.create(t, spec)))
}

func lifetime(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Timeout = time.Second
	sb := b.create(t, spec)
	require.Equal(t, sandbox.Status{ExitCode: driver.ExitLifetime}, b.ends(t, sb))
	_, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Exit(0)})
	requireCode(t, sandbox.Gone, err)
}

func unknownSandbox(t *testing.T, b *bench) {
	sb := b.provider.Open("sb-01ARZ3NDEKTSV4RRFFQ69G5FAV")
	_, err := sb.Poll(b.ctx(t))
	requireCode(t, sandbox.Gone, err)
	_, err = sb.Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Exit(0)})
	requireCode(t, sandbox.Gone, err)
	_, err = sb.ReadFile(b.ctx(t), "/etc/passwd")
	requireCode(t, sandbox.Gone, err)
	requireCode(t, sandbox.Gone, sb.WriteFile(b.ctx(t), "/tmp/f", nil, 0))
	_, err = sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{})
	requireCode(t, sandbox.Gone, err)
	_, err = sb.ExitSnapshot(b.ctx(t))
	requireCode(t, sandbox.Gone, err)
	require.NoError(t, sb.Terminate(b.ctx(t)))
}

func opensByID(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/tmp/f", "from the first")
	again := b.second.Open(sb.ID())
	require.Equal(t, "from the first", b.read(t, again, "/tmp/f"))
	require.Equal(t, "hi", string(b.run(t, again, b.Commands.Print("hi", "")).Stdout))
	require.NoError(t, again.Terminate(b.ctx(t)))
	require.Equal(t, sandbox.Status{ExitCode: driver.ExitTerminated}, b.ends(t, sb))
}

func afterTerminate(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/tmp/f", "x") // the first client has connected to it
	require.NoError(t, sb.Terminate(b.ctx(t)))
	for name, sb := range map[string]*sandbox.Sandbox{
		"TheHandleThatUsedIt": sb,
		"AnotherClient":       b.second.Open(sb.ID()),
	} {
		t.Run(name, func(t *testing.T) {
			st, err := sb.Poll(b.ctx(t))
			require.NoError(t, err)
			require.Equal(t, sandbox.Status{ExitCode: driver.ExitTerminated}, st)
			_, err = sb.Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Exit(0)})
			requireCode(t, sandbox.Gone, err)
			_, err = sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Exit(0)})
			requireCode(t, sandbox.Gone, err)
			_, err = sb.ReadFile(b.ctx(t), "/tmp/f")
			requireCode(t, sandbox.Gone, err)
			requireCode(t, sandbox.Gone, sb.WriteFile(b.ctx(t), "/tmp/g", nil, 0))
			_, err = sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{})
			requireCode(t, sandbox.Gone, err)
			require.NoError(t, sb.Terminate(b.ctx(t)))
		})
	}
}

func callsEnd(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	ctx, cancel := context.WithCancel(b.ctx(t))
	cancel()
	_, _, err := b.provider.Create(ctx, b.spec())
	require.ErrorIs(t, err, context.Canceled)
	_, err = driver.Collect(b.provider.List(ctx))
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
