package codex_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/codexbridge"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// children returns the child processes of a process.
func children(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	require.NoError(t, err)
	var pids []int
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}

func TestBridgeReportsAgentDeath(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	p.turn(t, "{{hello}}", nil)
	codexes := children(t, p.Cmd.Process.Pid)
	require.Len(t, codexes, 1)
	require.NoError(t, syscall.Kill(codexes[0], syscall.SIGKILL))
	var last stdio.Note
	for line := range p.Rest() {
		if n, ok := stdio.ParseNote(line); ok {
			last = n
		}
	}
	require.Equal(t, stdio.Note{Type: stdio.NoteDied, Message: "signal: killed"}, last)
	require.Eventually(t, func() bool { return p.Cmd.ProcessState != nil }, time.Minute, time.Millisecond)
	require.Equal(t, bridge.ExitDied, p.Cmd.ProcessState.ExitCode())

	p.in.Resume = true
	p.begin(t)
	p.turn(t, "{{hello}}", nil)
	p.agree(t)
}

func TestAgentDiesWithItsBridge(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	p.turn(t, "{{hello}}", nil)
	codexes := children(t, p.Cmd.Process.Pid)
	require.Len(t, codexes, 1)
	require.NoError(t, p.Cmd.Process.Kill())
	require.Eventually(t, func() bool { return syscall.Kill(codexes[0], 0) != nil || zombie(codexes[0]) },
		10*time.Second, 5*time.Millisecond)
}

// zombie reports whether a process has exited and has not been reaped.
func zombie(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || bytes.Contains(data, []byte(") Z "))
}

func TestThreadIsFoundWithoutNotebook(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: newest}, map[string][]modelserver.Step{
		"delegate": {{Calls: []modelserver.Call{modelserver.Spawn("helper", "{{child}}")}}, {Text: "It is at work."}},
		"child":    {{Text: "I have looked."}},
		"recall":   {{Recall: true}},
	})
	p.turn(t, "{{delegate}} it", nil)
	p.Close(t)
	require.NoError(t, os.Remove(p.launch.Transcripts[1]))
	p.in.Resume = true
	p.begin(t)
	r := p.turn(t, "{{recall}}", nil)
	require.Contains(t, r.All("assistant_text")[0].Content, "2 prompts; the first was: {{delegate}} it")
	p.Close(t)
}

func TestLostThreadIsRestarted(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{"recall": {{Recall: true}}})
	p.turn(t, "{{recall}} first", nil)
	p.Close(t)
	require.NoError(t, os.RemoveAll(filepath.Join(p.in.Home, ".codex/sessions")))
	p.in.Resume = true
	p.begin(t)
	r := p.turn(t, "{{recall}} second", nil)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.Contains(t, r.All("assistant_text")[0].Content, "1 prompts; the first was: {{recall}} second")
	p.Close(t)
}

func TestBridgeRejectsUnsupportedRequests(t *testing.T) {
	t.Setenv("CODEX_HOME", t.TempDir())
	var stderr bytes.Buffer
	run := func(args ...string) int {
		stdin, runner := io.Pipe() // which stays open
		defer runner.Close()
		return codexbridge.Main(args, stdin, io.Discard, &stderr)
	}
	require.Equal(t, bridge.ExitUsage, run())
	require.Equal(t, bridge.ExitUsage, run("--session", "../x"))
	require.Equal(t, bridge.ExitUsage, run("--no-such-flag"))
	require.Equal(t, bridge.ExitFailed, run("--session", "ses_1", "--program", filepath.Join(t.TempDir(), "none")))
	require.Contains(t, stderr.String(), "no such file")
	require.Equal(t, bridge.ExitDied, run("--session", "ses_1", "--program", "/bin/false"))
}
