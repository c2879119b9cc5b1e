package localmodal_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

func TestSandboxSeesOnlyProgramsOfHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o644))
	sb := b.create(nil)

	if !b.lacks(box.OwnRoot) {
		require.Equal(t, "0", strings.TrimSpace(b.sh(sb, "id -u")))
	}
	if !b.lacks(box.OwnHostname) {
		require.Equal(t, "modal\n", b.sh(sb, "hostname"))
	}
	require.Empty(t, b.sh(sb, "ls -A /root /home | grep -v : | grep . || true"))
	require.NotZero(t, b.exec(sb, nil, "", "cat", secret).code)
	require.Empty(t, b.sh(sb, "ls -A /tmp"))
	for _, path := range []string{"/etc/shadow", "/etc/ssh", "/etc/sudoers"} {
		require.NotZero(t, b.exec(sb, nil, "", "test", "-e", path).code, path)
	}
	written := b.exec(sb, nil, "", "touch", "/usr/made-in-a-sandbox").code == 0
	require.Equal(t, !b.lacks(box.SystemPackages), written, "a sandbox has its own view of /usr, or a read-only one")
	require.NoFileExists(t, "/usr/made-in-a-sandbox")

	if b.lacks(box.HiddenProcesses) {
		return
	}
	// Only the shell and ls are visible; init is hidden.
	pids := strings.Fields(b.sh(sb, "ls -d /proc/[0-9]* | sed s,/proc/,,"))
	require.LessOrEqual(t, len(pids), 5, "%v", pids)
	require.NotContains(t, pids, "1")
	require.NotZero(t, b.exec(sb, nil, "", "kill", "-0", fmt.Sprint(os.Getpid())).code)
}

func TestHostEnvironmentDoesNotLeak(t *testing.T) {
	t.Setenv("LOCALMODAL_TEST_SECRET", "very-secret-value")
	b := alone(t)
	sb := b.create(&modal.SandboxCreateParams{Env: map[string]string{"MINE": "1"}})
	all := b.sh(sb, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
	require.NotContains(t, all, "very-secret-value")
	require.Contains(t, all, "MINE=1")
	require.Contains(t, all, "MODAL_SANDBOX_ID="+sb.SandboxID)
}

func TestHostNetworkIsSharedOnlyAsDeclared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	script := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%s", port)

	open := b.create(nil)
	require.Equal(t, b.lacks(box.OwnNetwork), b.exec(open, nil, "", "bash", "-c", script).code == 0)
	if b.lacks(box.BlockedNetwork) {
		_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{BlockNetwork: true})
		require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
		require.ErrorContains(t, err, string(b.server.Isolation()))
		return
	}
	blocked := b.create(&modal.SandboxCreateParams{BlockNetwork: true})
	require.NotZero(t, b.exec(blocked, nil, "", "bash", "-c", script).code)
	require.Equal(t, "lo", strings.TrimSpace(b.sh(blocked, "tail -n +3 /proc/net/dev | cut -d: -f1")))
}

func TestSystemFilesAreReadOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	require.NotZero(t, b.exec(sb, nil, "", "sh", "-c", "echo x > /proc/sys/kernel/core_pattern").code)
	require.NotZero(t, b.exec(sb, nil, "", "sh", "-c", "echo h > /proc/sysrq-trigger").code)
}
