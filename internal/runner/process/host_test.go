package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// asHost names the environment variable that makes the test binary act as a host: a process that
// owns one agent, as the runner does. A reaper waits for every child of its process, and kills all
// descendants, so no two tests can share one.
const asHost = "OVERWINTER_TEST_AS_AGENT_HOST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asHost); dir != "" {
		_ = os.Unsetenv(asHost)
		if err := serveHost(dir, os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// order is one line of the stdin of a host.
type order struct {
	Start     *runner.Start
	Write     []byte
	Fill      bool // write until the agent is stuck
	Interrupt *runner.Interrupt
	CallOff   bool
	Kill      bool
	EndUnseen bool // kill the process, and check whether it is running before a signal can have been handled
	Stop      time.Duration
}

// hostLine is a line of a host's output: a frame, or the result of an order.
type hostLine struct {
	Frame     runner.Stream
	IsFrame   bool
	Data      string
	Truncated bool
	Err       string
	PID       int
	Count     int
	Running   bool
	Ended     bool
}

func serveHost(home string, stdin io.Reader, stdout io.Writer) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	var mu sync.Mutex
	printLine := func(s hostLine) {
		mu.Lock()
		defer mu.Unlock()
		data, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(stdout, "%s\n", data)
	}
	frame := func(stream runner.Stream, data []byte, truncated bool) {
		printLine(hostLine{IsFrame: true, Frame: stream, Data: string(data), Truncated: truncated})
	}
	r := NewReaper()
	defer r.Close()
	var a *Agent
	orders := json.NewDecoder(stdin)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if a != nil {
				a.Kill(runner.StoppedRunner)
				<-a.Done()
			}
			return nil
		}
		var s hostLine
		var err error
		switch {
		case o.Start != nil:
			var started *Agent
			if started, err = Start(r, home, o.Start, slog.New(slog.DiscardHandler), frame, func(<-chan struct{}) {}); err == nil {
				a = started
			}
		case o.Fill:
			for err == nil {
				if err = a.Write(o.Write, nil); err == nil {
					s.Count++
				}
			}
		case o.Write != nil:
			err = a.Write(o.Write, nil)
		case o.Interrupt != nil:
			err = a.Interrupt(*o.Interrupt)
		case o.CallOff:
			a.CallOff()
		case o.Kill:
			a.Kill(runner.StoppedInterrupt)
			<-a.Done()
		case o.EndUnseen:
			r.mu.Lock()
			err = unix.Kill(a.PID(), unix.SIGKILL)
			for err == nil {
				if err = unix.Waitid(unix.P_PID, a.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR { //nolint:errorlint // returned unwrapped
					break
				}
				err = nil
			}
			r.mu.Unlock()
			r.Look()
		case o.Stop > 0:
			a.Stop(runner.StoppedSeal, o.Stop)
		}
		if err != nil {
			s.Err = err.Error()
		}
		if a != nil {
			s.PID, s.Running, s.Ended = a.PID(), a.Running(), a.Ended()
		}
		printLine(s)
	}
}

// waitLimit bounds each wait of a test.
const waitLimit = 2 * time.Minute

// host is a host process, with a directory for its agent.
type host struct {
	t      *testing.T
	dir    string
	stdin  io.Writer
	lines  chan hostLine
	frames []hostLine
}

func newHost(t *testing.T, environment ...string) *host {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	h := &host{t: t, dir: t.TempDir(), lines: make(chan hostLine, 1024)}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), asHost+"="+h.dir), environment...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h.stdin = stdin
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(h.lines)
		scan := bufio.NewScanner(stdout)
		for scan.Buffer(nil, 1<<20); scan.Scan(); {
			var s hostLine
			if json.Unmarshal(scan.Bytes(), &s) == nil {
				h.lines <- s
			}
		}
	})
	t.Cleanup(func() {
		_ = stdin.Close()
		for range h.lines { // discard the lines that no test has read
		}
		reading.Wait()
		_ = cmd.Wait()
	})
	return h
}

func (h *host) next() hostLine {
	h.t.Helper()
	select {
	case s, ok := <-h.lines:
		require.True(h.t, ok, "the host has ended; frames so far: %v", h.frames)
		return s
	case <-time.After(waitLimit):
		h.t.Fatalf("the host is silent; frames so far: %v", h.frames)
		return hostLine{}
	}
}

// do sends an order and returns its result.
func (h *host) do(o order) hostLine {
	h.t.Helper()
	require.NoError(h.t, json.NewEncoder(h.stdin).Encode(o))
	for {
		s := h.next()
		if !s.IsFrame {
			return s
		}
		h.frames = append(h.frames, s)
	}
}

// line waits for a line of the agent.
func (h *host) line(text string) {
	h.t.Helper()
	for i := 0; ; i++ {
		for i >= len(h.frames) {
			h.frames = append(h.frames, h.next())
		}
		if f := h.frames[i]; f.Frame != runner.Exit && f.Data == text {
			return
		}
	}
}

// exit waits for the exit frame.
func (h *host) exit() runner.ExitReport {
	h.t.Helper()
	for i := 0; ; i++ {
		for i >= len(h.frames) {
			h.frames = append(h.frames, h.next())
		}
		if f := h.frames[i]; f.Frame == runner.Exit {
			require.Len(h.t, h.frames, i+1, "nothing follows the exit frame")
			var r runner.ExitReport
			require.NoError(h.t, json.Unmarshal([]byte(f.Data), &r))
			return r
		}
	}
}

// shell starts a script.
func (h *host) shell(script string) hostLine {
	h.t.Helper()
	s := h.do(order{Start: &runner.Start{Launch: runner.Launch{Argv: []string{"sh", "-c", script}, Dir: h.dir}}})
	require.Empty(h.t, s.Err)
	return s
}

// text returns the content of a file in the agent's directory.
func (h *host) text(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, name))
	require.NoError(h.t, err)
	return strings.TrimSpace(string(data))
}
