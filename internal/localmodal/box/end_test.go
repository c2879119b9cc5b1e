package box

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// running counts the machine's processes whose command line contains text.
func running(t *testing.T, text string) int {
	t.Helper()
	return commandLines(t, func(line string) bool { return strings.Contains(line, text) })
}

// executing counts the processes whose command line begins with a program.
func executing(t *testing.T, program string) int {
	t.Helper()
	return commandLines(t, func(line string) bool { return strings.HasPrefix(line, program+"\x00") })
}

func commandLines(t *testing.T, counts func(line string) bool) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	n := 0
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && counts(string(line)) {
			n++
		}
	}
	return n
}

// daemon starts a process that is independent of the process that started it.
func (b *bundle) daemon(bx *Box) string {
	b.t.Helper()
	name := "sleep-" + uuid.NewString()
	b.sh(bx, "cp /usr/bin/sleep /tmp/"+name+" && (setsid setsid /tmp/"+name+" 1000 </dev/null >/dev/null 2>&1 &)")
	// Before its last exec, a process that has another program also has the name in its command line.
	require.Eventually(b.t, func() bool { return executing(b.t, "/tmp/"+name) == 1 }, waitLimit, 5*time.Millisecond)
	return name
}

func TestBoxEndLeavesNoProcesses(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		killed, crashed, other := b.start(), b.start(), b.start()
		one, two, three := b.daemon(killed), b.daemon(crashed), b.daemon(other)
		killed.Kill()
		require.Zero(t, running(t, one))

		require.NoError(t, syscall.Kill(crashed.PID(), syscall.SIGKILL))
		<-crashed.Gone()
		require.Eventually(t, func() bool { return running(t, two) == 0 }, waitLimit, time.Millisecond)
		// A process has no command line for a moment while it starts.
		require.Eventually(t, func() bool { return running(t, three) == 1 }, waitLimit, time.Millisecond, "another's")
		_, err := crashed.Snapshot(t.Context(), "never")
		require.ErrorIs(t, err, ErrGone)
	})
}
