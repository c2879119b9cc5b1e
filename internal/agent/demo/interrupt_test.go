package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/demoagent"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// live is a process of the agent inside the test, with which the test communicates during a turn.
type live struct {
	stdin *io.PipeWriter
	out   *bufio.Reader
}

func goLive(t *testing.T, s *stage) *live {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := demoagent.Agent{
		Home: s.home, Workspace: s.workspace, Stdout: outW, Stderr: io.Discard, Model: demoformat.Name,
		Now: time.Now, NewID: uuid.NewString,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		code := p.Run([]string{"--session", testSession}, inR)
		_ = outW.CloseWithError(fmt.Errorf("exit code %d", code)) // never fails
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		<-done
	})
	return &live{stdin: inW, out: bufio.NewReader(outR)}
}

func (l *live) write(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(l.stdin, text)
	require.NoError(t, err)
}

// until reads lines up to the first of a type.
func (l *live) until(t *testing.T, kind demoformat.LineType) demoformat.Line {
	t.Helper()
	for {
		raw, err := l.out.ReadBytes('\n')
		require.NoError(t, err, "waiting for %s", kind)
		var got demoformat.Line
		require.NoError(t, json.Unmarshal(raw, &got))
		if got.Type == kind {
			return got
		}
	}
}

func TestInterruptKillsWholeProcessTree(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	l := goLive(t, s)
	// One child in the group, one in a separate session with a child, both ignoring SIGTERM.
	l.write(t, s.prompt(t, "r1", `$ trap '' TERM; sleep 300 & echo $! >>pids; setsid sh -c 'echo $$ >>pids; sleep 300 & echo $! >>pids; wait' & wait`))
	l.until(t, demoformat.LineToolRunning)
	var pids []string
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(filepath.Join(s.workspace, "pids"))
		pids = strings.Fields(string(data))
		return err == nil && len(pids) == 3
	}, time.Minute, 5*time.Millisecond)
	began := time.Now()
	l.write(t, string(Adapter{}.Interrupt("r1").Stdin))
	result := l.until(t, demoformat.LineToolResult)
	require.Less(t, time.Since(began), time.Minute)
	require.True(t, result.Aborted)
	require.True(t, result.IsError)
	require.Equal(t, string(session.OutcomeCancelled), l.until(t, demoformat.LineResult).Outcome)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(t, pid) }, time.Minute, 5*time.Millisecond, "pid %s", pid)
	}
}

func TestInterruptReachesOnlyRunItNames(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	l := goLive(t, s)
	l.write(t, s.prompt(t, "r1", "sleep 5m"))
	l.until(t, demoformat.LineToolRunning)
	l.write(t, s.prompt(t, "r2", "never said"))
	l.write(t, s.prompt(t, "r3", "said"))
	l.write(t, string(Adapter{}.Interrupt("r0").Stdin)) // has ended
	l.write(t, string(Adapter{}.Interrupt("r2").Stdin)) // is waiting
	l.write(t, string(Adapter{}.Interrupt("r1").Stdin)) // is running
	var outcomes []string
	for range 3 {
		r := l.until(t, demoformat.LineResult)
		outcomes = append(outcomes, r.RunID+" "+r.Outcome)
	}
	require.Equal(t, []string{"r1 cancelled", "r2 cancelled", "r3 completed"}, outcomes)
	c, err := Adapter{}.Parse(s.files(t))
	require.NoError(t, err)
	var said []string
	for _, b := range c.Threads[0].Blocks {
		if b.Type == conversation.AssistantText {
			said = append(said, b.Content)
		}
	}
	require.Equal(t, []string{"said"}, said)
}

func TestInterruptEndsSubagentToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	l := goLive(t, s)
	l.write(t, s.prompt(t, "r1", "subagent bob: slow 1h: one two\nnot reached"))
	l.until(t, demoformat.LineStart)
	l.write(t, `{"type":"interrupt"}`+"\n") // any run
	require.Equal(t, string(session.OutcomeCancelled), l.until(t, demoformat.LineResult).Outcome)
	c, err := Adapter{}.Parse(s.files(t))
	require.NoError(t, err)
	require.Len(t, c.Threads, 2)
	require.EqualValues(t, "aborted", c.Threads[0].Blocks[1].Status)
	require.EqualValues(t, "aborted", c.Threads[1].Blocks[1].Status)
	require.Len(t, c.Threads[0].Blocks, 3)
}

// alive reports whether a process exists and is not a zombie.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	return fields[0] != "Z"
}

func killNamed(t *testing.T, pid string) error {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	return syscall.Kill(n, syscall.SIGKILL)
}
