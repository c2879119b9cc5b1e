package agenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// waitLimit bounds how long the suite waits for an agent.
const waitLimit = 3 * time.Minute

// bench is one session with its home, its workspace and its runs so far.
type bench struct {
	Harness
	sessionID       string
	home, workspace string
	process         *process
	runs            []*run
	checked         int        // number of runs that check has already checked
	owner           *testing.T // test of the shared session; nil for the session of a single scenario
	killed          bool       // a process was killed during a turn
	killedInTool    *run       // run whose process was killed during a tool; nil for none
	launched        bool       // a process has been started
	note            string     // sent with prompts
	permissions     permission.Rules
	// answer returns the suite's answer to a question; nil if none is expected.
	answer func(agent.Question) agent.Answer
	// before is called with each frame before it is translated; nil for nothing.
	before func(agent.Frame)
	// tools is the command line of the server of overwinter's tools, and calls are those that it
	// received; nil if the agent is not offered them.
	tools []string
	calls *toolCalls
}

// run is the content of one run's journal.
type run struct {
	context agent.RunContext
	frames  []agent.Frame
	events  []conversation.Event
	end     *agent.TurnEnd
	live    agent.Translator
	// questions are the questions that the agent has asked, resolved the ids of those that no
	// longer wait.
	questions []agent.Question
	resolved  []string
	// expected are the prompts passed to the running turn, by the number of the frame before which
	// the translator is notified of them. steered has the agent's verdicts on them.
	expected map[int][]agent.Steered
	steered  []agent.SteerVerdict
}

func newBench(t *testing.T, h Harness) *bench {
	return &bench{
		Harness: h, sessionID: session.NewID(session.SessionPrefix), home: t.TempDir(), workspace: t.TempDir(),
	}
}

// launch starts the agent's process if none is running.
func (b *bench) launch(t *testing.T) {
	t.Helper()
	if b.process != nil {
		return
	}
	launch, err := b.Adapter.Launch(agent.LaunchInput{
		SessionID: b.sessionID, Home: b.home, Workspace: b.workspace, Resume: b.launched, Permissions: b.permissions, Tools: b.tools,
	})
	require.NoError(t, err)
	t = b.lifetime(t) // that of the process
	cmd := b.Command(t, launch)
	cmd.Dir = launch.Dir
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	for _, k := range slices.Sorted(maps.Keys(launch.Env)) {
		cmd.Env = append(cmd.Env, k+"="+launch.Env[k])
	}
	b.process, b.launched = startProcess(t, cmd), true
}

// lifetime returns the test that the session ends with.
func (b *bench) lifetime(t *testing.T) *testing.T {
	if b.owner != nil {
		return b.owner
	}
	return t
}

// begin delivers a prompt under a new run.
func (b *bench) begin(t *testing.T, content string) *run {
	t.Helper()
	r := &run{context: agent.RunContext{
		RunID: session.NewID(session.RunPrefix), PromptID: session.NewID(session.PromptPrefix), Author: "ada",
	}}
	b.runs = append(b.runs, r)
	b.deliver(t, r, content)
	return r
}

// deliver delivers the prompt of a run, possibly not for the first time.
func (b *bench) deliver(t *testing.T, r *run, content string) {
	t.Helper()
	require.NotEmpty(t, content, "the harness has no prompt for this scenario and does not say that it cannot")
	live, err := b.Adapter.NewTranslator(r.context, nil)
	require.NoError(t, err)
	r.live = live
	b.launch(t)
	data, err := b.Adapter.Prompt(agent.PromptInput{
		RunID: r.context.RunID, PromptID: r.context.PromptID, Content: content, Author: r.context.Author, At: time.Now(), Note: b.note,
	})
	require.NoError(t, err)
	require.Contains(t, string(data), b.note)
	b.process.write(t, data)
}

// turn runs a prompt to its end and returns the run.
func (b *bench) turn(t *testing.T, content string) *run {
	t.Helper()
	r := b.begin(t, content)
	b.finish(t, r)
	return r
}

// finish reads frames until the turn has ended.
func (b *bench) finish(t *testing.T, r *run) {
	t.Helper()
	b.until(t, r, "the end of the turn", func(conversation.Event) bool { return false })
	require.NotNil(t, r.end)
}

// until reads frames until the awaited event arrives or the turn has ended.
func (b *bench) until(t *testing.T, r *run, what string, found func(conversation.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for r.end == nil {
		var f agent.Frame
		var ok bool
		select {
		case f, ok = <-b.process.frames:
			require.True(t, ok, "the process exited while waiting for %s", what)
		case <-ctx.Done():
			require.FailNow(t, "the agent does nothing", "waiting for %s; frames so far:\n%s", what, printFrames(r.frames))
		}
		f.No = int64(len(r.frames))
		r.frames = append(r.frames, f)
		if b.before != nil {
			b.before(f)
		}
		tr, err := r.live.Translate(f)
		require.NoError(t, err)
		r.events = append(r.events, tr.Events...)
		r.end = tr.End
		if len(tr.Input) > 0 {
			b.process.write(t, tr.Input)
		}
		r.resolved = append(r.resolved, tr.Resolved...)
		r.steered = append(r.steered, tr.Steered...)
		for _, q := range tr.Questions {
			b.reply(t, r, q)
		}
		if f.Stream == agent.Exit {
			b.process = nil
			require.NotNil(t, r.end, "the exit of the agent must end its turn")
		}
		if slices.ContainsFunc(tr.Events, found) {
			return
		}
	}
}

// reply answers a question of the agent.
func (b *bench) reply(t *testing.T, r *run, q agent.Question) {
	t.Helper()
	require.NotNil(t, b.answer, "unexpected question: %+v", q)
	require.NotEmpty(t, q.ID)
	for _, other := range r.questions {
		require.NotEqual(t, other.ID, q.ID, "two questions have one id")
	}
	r.questions = append(r.questions, q)
	answerer, ok := b.Adapter.(agent.Answerer)
	require.True(t, ok, "an agent that asks is an agent.Answerer")
	data, err := answerer.Answer(q, b.answer(q))
	require.NoError(t, err)
	b.process.write(t, data)
	b.process.write(t, data) // as if two workers answered the same question: the agent acts on the answer once
}

// interrupt aborts a run as the adapter specifies.
func (b *bench) interrupt(t *testing.T, r *run) {
	t.Helper()
	how := b.Adapter.Interrupt(r.context.RunID)
	require.Positive(t, how.Grace)
	if len(how.Stdin) > 0 {
		b.process.write(t, how.Stdin)
		return
	}
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	sig, ok := signals[how.Signal]
	require.True(t, ok, "unknown signal %q", how.Signal)
	require.NoError(t, b.process.cmd.Process.Signal(sig))
}

// kill kills the process as kill -9 does. It first waits until the transcript has everything that
// the process has printed in this turn, because an agent may write its transcript a little later.
func (b *bench) kill(t *testing.T) {
	t.Helper()
	b.killed = true
	require.Eventually(t, func() bool {
		have := map[string]bool{}
		for _, thread := range b.parsed(t, b.transcripts(t)).Threads {
			for _, block := range thread.Blocks {
				have[block.ID] = true
			}
		}
		for _, thread := range Fold(t, b.viewed(b.runs[len(b.runs)-1].events)).Threads {
			for _, block := range thread.Blocks {
				if !have[block.ID] && block.Status != conversation.Streaming && block.Status != conversation.Pending {
					return false
				}
			}
		}
		return true
	}, waitLimit, 10*time.Millisecond, "the transcript does not catch up")
	require.NoError(t, b.process.cmd.Process.Kill())
}

// close closes stdin and waits until the agent has exited.
func (b *bench) close(t *testing.T) {
	t.Helper()
	if b.process == nil {
		return
	}
	require.NoError(t, b.process.stdin.Close())
	deadline := time.After(waitLimit)
	for {
		select {
		case _, ok := <-b.process.frames:
			if !ok {
				b.process = nil
				return
			}
		case <-deadline:
			require.FailNow(t, "the agent does not end when its stdin does")
		}
	}
}

// transcripts reads the files that the runner would follow.
func (b *bench) transcripts(t *testing.T) []transcript.File {
	t.Helper()
	launch, err := b.Adapter.Launch(agent.LaunchInput{SessionID: b.sessionID, Home: b.home, Workspace: b.workspace})
	require.NoError(t, err)
	require.NotEmpty(t, launch.Transcripts)
	var files []transcript.File
	for _, pattern := range launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, transcript.File{Path: name, Data: data})
		}
	}
	return files
}

// move gives the session a new home that contains only its transcripts.
func (b *bench) move(t *testing.T) {
	t.Helper()
	files := b.transcripts(t)
	home := b.lifetime(t).TempDir()
	for _, f := range files {
		rel, err := filepath.Rel(b.home, f.Path)
		require.NoError(t, err)
		name := filepath.Join(home, rel)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, f.Data, 0o600))
	}
	b.home, b.workspace = home, b.lifetime(t).TempDir()
}

// process is the agent's process with the frames that a runner would record.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	frames chan agent.Frame // closed after the exit frame
}

func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	// A few frames of slack; stop unblocks the pump once a test has stopped reading.
	p := &process{cmd: cmd, stdin: stdin, frames: make(chan agent.Frame, 64)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.frames)
		p.pump(ctx, stdout)
		err := cmd.Wait()
		p.send(ctx, exitFrame(cmd.ProcessState, err, stderr.String()))
	}()
	t.Cleanup(func() {
		stop()
		_ = cmd.Process.Kill() // usually exited already
		<-done
	})
	return p
}

// pump sends each line of stdout. Once ctx is done, it continues to read but no longer sends.
func (p *process) pump(ctx context.Context, stdout io.Reader) {
	r := bufio.NewReader(stdout)
	for {
		data, err := r.ReadBytes('\n')
		if len(data) > 0 {
			p.send(ctx, agent.Frame{Stream: agent.Stdout, At: time.Now(), Data: trimNewline(data)})
		}
		if err != nil {
			return
		}
	}
}

func (p *process) send(ctx context.Context, f agent.Frame) {
	select {
	case p.frames <- f:
	case <-ctx.Done():
	}
}

func (p *process) write(t *testing.T, data []byte) {
	t.Helper()
	_, err := p.stdin.Write(data)
	require.NoError(t, err)
}

func exitFrame(state *os.ProcessState, err error, stderr string) agent.Frame {
	report := agent.ExitReport{Code: state.ExitCode(), Stderr: stderr}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		report.Signal = ws.Signal().String()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		report.Stderr += err.Error()
	}
	return agent.Frame{Stream: agent.Exit, At: time.Now(), Data: encode(report)}
}

func trimNewline(b []byte) []byte { return []byte(strings.TrimSuffix(string(b), "\n")) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("agenttest: encode %T: %v", v, err)) // our own types can always be encoded
	}
	return b
}

func printFrames(frames []agent.Frame) string {
	var s strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&s, "%d %s %s\n", f.No, f.Stream, f.Data)
	}
	return s.String()
}
