package child_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

// waitLimit bounds every wait of a test. It is generous because the tests of all packages share the
// machine.
const waitLimit = 2 * time.Minute

// The first thread is that of TestMain, for the role that ends it.
func init() { runtime.LockOSThread() }

// TestMain lets this program act as the children, and as a supervisor that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(play(os.Args[1], os.Args[2:]))
	}
	leaktest.Main(m)
}

// play acts as one of the programs that tests run.
func play(role string, args []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	switch role {
	case "answer": // args: FILE, made when ready
		if err := os.WriteFile(args[0], nil, 0o600); err != nil {
			return 1
		}
		_, _ = fmt.Fprintln(os.Stdout, `{"level":"WARN","msg":"look here","count":3}`)
		<-signals
		_, _ = fmt.Fprintln(os.Stdout, "bye")
		return 0
	case "fail":
		fmt.Fprintln(os.Stderr, "cannot find my shoes")
		return 7
	case "hang":
		<-signals
		return 0
	case "stubborn": // args: FILE for the process id of a child in the same group
		signal.Ignore(syscall.SIGTERM)
		sleeper := exec.Command("sleep", "1000")
		if err := sleeper.Start(); err != nil {
			return 1
		}
		if err := os.WriteFile(args[0]+".part", []byte(strconv.Itoa(sleeper.Process.Pid)), 0o600); err != nil {
			return 1
		}
		if err := os.Rename(args[0]+".part", args[0]); err != nil {
			return 1
		}
		select {}
	case "weak": // args: FILE; creates it and is killed; the next time it creates FILE.twice
		if _, err := os.Stat(args[0]); err == nil {
			if err := os.WriteFile(args[0]+".twice", nil, 0o600); err != nil {
				return 1
			}
			<-signals
			return 0
		}
		if err := os.WriteFile(args[0], nil, 0o600); err != nil {
			return 1
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "headless": // prints its address, and on request ends its first thread but keeps its port
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 1
		}
		defer listener.Close()
		_, _ = fmt.Fprintln(os.Stdout, listener.Addr())
		_, _ = os.Stdin.Read(make([]byte, 1))
		signal.Reset(syscall.SIGTERM)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread, which is the first: see init
	case "stdin": // ends with its stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "supervisor": // args: DIR, FILE for the process id of its child
		s := child.NewSupervisor(child.Options{RunDir: args[0], LogDir: args[0]})
		err := s.Start(context.Background(), child.Spec{Name: "one", Command: child.Command{Path: os.Args[0], Args: []string{"hang"}}})
		if err != nil {
			return 1
		}
		if err := os.WriteFile(args[1]+".part", []byte(strconv.Itoa(s.PID("one"))), 0o600); err != nil {
			return 1
		}
		if err := os.Rename(args[1]+".part", args[1]); err != nil {
			return 1
		}
		select {}
	}
	return 99
}

// command runs this program in a role.
func command(t *testing.T, role string, args ...string) child.Command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return child.Command{Path: self, Args: append([]string{role}, args...)}
}

// exists returns a probe for a file.
func exists(path string) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(path)
		return err
	}
}

// alive reports whether the process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, waitLimit, 5*time.Millisecond, what)
}

// readPID waits for a file with a process id.
func readPID(t *testing.T, path string) int {
	t.Helper()
	eventually(t, func() bool { return exists(path)(t.Context()) == nil }, "no "+filepath.Base(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(content))
	require.NoError(t, err)
	return pid
}
