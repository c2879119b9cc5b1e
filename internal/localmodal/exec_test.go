package localmodal_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
)

func TestExecPassesStreamsAndExitCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(&modal.SandboxCreateParams{Env: map[string]string{"A": "1"}, Workdir: "/work/dir"})
	r := b.exec(sb, &modal.SandboxExecParams{Env: map[string]string{"B": "2"}}, "from stdin",
		"sh", "-c", "cat; echo \" $A $B $PWD\"; echo oops >&2; exit 3")
	require.Equal(t, result{3, "from stdin 1 2 /work/dir\n", "oops\n"}, r)

	require.Equal(t, "/etc\n", b.exec(sb, &modal.SandboxExecParams{Workdir: "/etc"}, "", "pwd").stdout)
	require.Equal(t, 128+15, b.exec(sb, nil, "", "sh", "-c", "kill $$").code)
	_, err := sb.Exec(b.ctx, []string{"no-such-program"}, nil)
	require.ErrorContains(t, err, "no-such-program")
	_, err = sb.Exec(b.ctx, []string{"true"}, &modal.SandboxExecParams{Workdir: "/nowhere"})
	require.ErrorContains(t, err, "/nowhere")
}

func TestExecMovesMuchData(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	process, err := sb.Exec(b.ctx, []string{"sh", "-c", "sleep 0.05; cat"}, nil)
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789abcdef"), 512<<10) // much larger than a pipe, and than the part that stays in memory
	go func() {
		_, _ = process.Stdin.Write(data)
		_ = process.Stdin.Close()
	}()
	got, err := io.ReadAll(process.Stdout)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got), "got %d bytes", len(got))
	code, err := process.Wait(b.ctx, nil)
	require.NoError(t, err)
	require.Zero(t, code)
}

func TestOutputArrivesWhileProcessRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	process, err := sb.Exec(b.ctx, []string{"sh", "-c", "echo one; read x; echo $x"}, nil)
	require.NoError(t, err)
	buf := make([]byte, 16)
	n, err := process.Stdout.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "one\n", string(buf[:n]))
	_, err = io.WriteString(process.Stdin, "two\n")
	require.NoError(t, err)
	rest, err := io.ReadAll(process.Stdout)
	require.NoError(t, err)
	require.Equal(t, "two\n", string(rest))
}

func TestExecHasTerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	r := b.exec(sb, &modal.SandboxExecParams{PTY: true}, "", "sh", "-c", "tty; test -t 0 && test -t 1 && echo yes; cat")
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "/dev/pts/")
	require.Contains(t, r.stdout, "yes")
}

func TestExecTimeoutKills(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	marker := "sleep-" + sb.SandboxID
	b.sh(sb, "cp /usr/bin/sleep /tmp/"+marker)
	process, err := sb.Exec(b.ctx, []string{"/tmp/" + marker, "1000"}, &modal.SandboxExecParams{Timeout: time.Second})
	require.NoError(t, err)
	code, err := process.Wait(b.ctx, nil)
	if err == nil {
		require.Equal(t, 137, code)
	}
	require.NoError(t, b.ctx.Err())
	require.Eventually(t, func() bool { return processes(t, marker) == 0 }, waitLimit, 20*time.Millisecond)
}

func TestProcessOutlivesItsClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	ctx, cancel := context.WithCancel(b.ctx)
	process, err := sb.Exec(ctx, []string{"sh", "-c", "echo up; while ! test -e /root/go; do sleep 0.01; done; seq 100000; echo done > /root/done"}, nil)
	require.NoError(t, err)
	_, err = process.Stdout.Read(make([]byte, 16))
	require.NoError(t, err)
	cancel()
	require.NoError(t, process.Stdout.Close())
	require.NoError(t, sb.Detach())

	again := connect(t, b.server)
	other, err := again.client.Sandboxes.FromID(again.ctx, sb.SandboxID, nil)
	require.NoError(t, err)
	again.handle(other)
	require.NoError(t, other.Filesystem.WriteText(again.ctx, "", "/root/go", nil))
	require.Eventually(t, func() bool {
		text, err := other.Filesystem.ReadText(again.ctx, "/root/done", nil)
		return err == nil && text == "done\n"
	}, waitLimit, 20*time.Millisecond)
}

func TestBackgroundChildDoesNotHoldOutputOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	require.Equal(t, "said\n", b.sh(sb, "sleep 1000 & echo said"))
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, "for i in 1 2 3; do (setsid sh -c 'exit 0' &) ; done")
	require.Eventually(t, func() bool {
		// The shell's parent is the sandbox's init, which adopts orphans.
		return b.sh(sb, `cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z $PPID " || true`) == "0\n"
	}, waitLimit, 20*time.Millisecond)
}
