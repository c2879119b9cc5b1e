package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// protectedChild is set for a test binary that protects itself and prints the result.
const protectedChild = "OVERWINTER_TEST_PROTECTED"

func reportProtection() int {
	if err := protectProcess(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dumpable, _, _ := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE, 0, 0)
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return 1
	}
	fmt.Fprintf(os.Stdout, "dumpable %d, core %d %d", dumpable, core.Cur, core.Max)
	return 0
}

func TestProtectedProcessHidesEnvironment(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), protectedChild+"=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "dumpable 0, core 0 0", string(out))
}

func TestCommandsWithSecretsAreProtected(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"api --address=127.0.0.1:0": true, "worker": true, "dev --data-dir=/dev/null/none": true,
		"local-modal --data-dir=/dev/null/none": false, "version": false,
	} {
		protected := false
		p := program{args: strings.Fields(name), stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, protect: func() error {
			protected = true
			return fmt.Errorf("enough of %s", name) // it need not run
		}}
		if strings.HasPrefix(name, "worker") || strings.HasPrefix(name, "api") {
			p.args = append(p.args, "--database-url=postgres://nobody@127.0.0.1:1/x")
		}
		if strings.HasPrefix(name, "worker") {
			p.args = append(p.args, "--modal-token-id=x", "--modal-token-secret=x", "--secret-key=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		}
		if strings.HasPrefix(name, "api") {
			p.args = append(p.args, "--allow-loopback-without-key")
		}
		p.Run(t.Context())
		require.Equal(t, want, protected, "%s: %s", name, p.stderr)
	}
}
