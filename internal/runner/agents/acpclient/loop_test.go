package acpclient_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// waitLimit bounds how long a test waits for a line, on a busy machine.
const waitLimit = 2 * time.Minute

// talk is a minimal Agent, whose notes name the methods that the loop calls.
type talk struct {
	acpclient.Bridge
	limit     time.Duration
	repeating bool
	runs      map[string]bool // whether the run has ended
}

func (k *talk) say(what string) { k.Note(stdio.Note{Type: stdio.NoteType(what)}) }

func (k *talk) Ready(s acpclient.Started) { k.say("ready " + s.Session) }
func (k *talk) Repeating() bool           { return k.repeating }
func (k *talk) Repeated(s acpclient.Said) {
	if s.Method == "repeated" {
		k.repeating = false
	}
}

func (k *talk) Known(run string) (json.RawMessage, bool) { return nil, k.runs[run] }
func (k *talk) Begun(c stdio.Command)                    { k.say("begun " + c.RunID) }
func (k *talk) Texts(content string) []string            { return []string{content} }
func (k *talk) Poll()                                    {}
func (k *talk) Updated(s acpclient.Said)                 { k.Out.Raw(s.Line) }
func (k *talk) Interrupted()                             { k.say("interrupted") }
func (k *talk) MaxSilence() time.Duration                { return k.limit }
func (k *talk) RecordTimeout()                           { k.say("given up: " + k.Turn.TimedOut.Error()) }
func (k *talk) Failed(message string)                    { k.Ended(session.OutcomeFailed, message) }

func (k *talk) Asked(params json.RawMessage) (string, json.RawMessage) {
	var p acpformat.Params
	acpformat.Decode(params, &p)
	k.say("asked " + p.ToolCall.ID)
	return p.ToolCall.ID, p.Options
}

func (k *talk) Answered(call string, d acpclient.Decision) {
	k.say("answered " + call + " " + []string{"withdrawn", "allowed", "rejected"}[d])
}

func (k *talk) Finished(m bridge.Message) {
	outcome, reason, _ := k.Turn.Ended(m)
	k.Ended(outcome, reason)
}

func (k *talk) Ended(outcome session.Outcome, reason string) {
	k.runs[k.Turn.Run] = true
	k.End(acpformat.Encode(map[string]any{"outcome": outcome, "reason": reason}))
}

// logged are the lines of stderr.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// rig is a loop with an agent that is a shell script.
type rig struct {
	*talk
	start  chan acpclient.Started // the result of the handshake
	stdin  *io.PipeWriter
	out    chan string
	stderr logged
	exit   chan int
	name   string // of the notebook
}

// setup starts a loop. The script reads the loop's lines from its stdin.
func setup(t *testing.T, script string, change func(*talk)) *rig {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, toTest := io.Pipe()
	r := &rig{
		start: make(chan acpclient.Started), stdin: stdin, out: make(chan string), stderr: make(logged, 16), // more than a test logs

		exit: make(chan int, 1), name: filepath.Join(t.TempDir(), "notebook.jsonl"),
	}
	r.talk = &talk{runs: map[string]bool{}, Bridge: acpclient.Bridge{
		Name: "test-bridge", Noun: "agent", Silent: "no word", Stderr: r.stderr, Out: bridge.NewOutput(toTest), Interval: 5 * time.Millisecond,
	}}
	if change != nil {
		change(r.talk)
	}
	notebook, past, err := acpclient.OpenNotebook(r.name)
	require.NoError(t, err)
	require.Empty(t, past)
	start := func() error {
		return r.Start(bridge.Spec{Argv: []string{"/bin/sh", "-c", script}, Stderr: io.Discard}, func(ctx context.Context, _ *bridge.Peer) acpclient.Started {
			select {
			case s := <-r.start:
				return s
			case <-ctx.Done():
				return acpclient.Started{Err: ctx.Err()}
			case <-t.Context().Done():
				return acpclient.Started{Err: t.Context().Err()}
			}
		})
	}
	go func() {
		defer close(r.out)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			select {
			case r.out <- in.Text():
			case <-t.Context().Done():
			}
		}
	}()
	go func() {
		code, err := r.Run(r.talk, notebook, start, in)
		if err != nil {
			code = -1
		}
		_ = toTest.Close()
		_ = in.Close()
		r.exit <- code
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = stdout.Close()
		r.code(t)
	})
	r.expect(t, "session")
	return r
}

// command sends the loop a command.
func (r *rig) command(t *testing.T, c stdio.Command) {
	t.Helper()
	line, err := c.Encode()
	require.NoError(t, err)
	_, err = r.stdin.Write(line)
	require.NoError(t, err)
}

// expect reads the next lines of the loop: types of notes, of an end with its outcome, or methods and
// results of the agent.
func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case line, ok := <-r.out:
			require.True(t, ok, "the output ends before %q", w)
			require.Equal(t, w, brief(line))
		case <-time.After(waitLimit):
			require.FailNow(t, "the loop does nothing", "want %q", w)
		}
	}
}

func brief(line string) string {
	n, ok := stdio.ParseNote([]byte(line))
	if !ok {
		return strings.TrimSpace(line)
	}
	var end struct{ Outcome, Reason string }
	_ = json.Unmarshal(n.Data, &end) // most have none
	return strings.Join(strings.Fields(strings.Join([]string{string(n.Type), n.Message, end.Outcome, end.Reason}, " ")), " ")
}

// code waits for the end of the loop. It may be called again.
func (r *rig) code(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.exit:
		r.exit <- code
		return code
	case <-time.After(waitLimit):
		require.FailNow(t, "the loop does not end")
		return 0
	}
}

// respond responds to each prompt at once.
const respond = `while read line; do case "$line" in *'"session/prompt#'*)
	id=${line#*'"id":"'}; echo '{"id":"'${id%%\"*}'","result":{"stopReason":"end_turn"}}';; esac; done`

func TestPromptWaitsForAgentAndRunsOnce(t *testing.T) {
	t.Parallel()
	r := setup(t, `echo '{"method":"repeated"}'; `+respond, func(k *talk) { k.repeating = true })
	r.expect(t, `{"method":"repeated"}`) // before the session is ready, so outside any turn
	prompt := stdio.Command{Type: stdio.Prompt, RunID: "run_1", Content: "hello"}
	r.command(t, prompt)
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_2"}) // rejected: one is already waiting
	r.start <- acpclient.Started{Session: "s1"}
	r.expect(t, "ready s1", "begun run_1", `{"id":"session/prompt#1","result":{"stopReason":"end_turn"}}`, "end completed")
	r.command(t, prompt)
	r.expect(t, "known")
	require.NoError(t, r.stdin.Close())
	require.Equal(t, bridge.ExitDone, r.code(t))
	require.Contains(t, <-r.stderr, "the prompt of run run_2 arrives while another is in progress")

	past, err := os.ReadFile(r.name)
	require.NoError(t, err)
	var notes []string
	for n := range acpclient.Notes(append(past, "no note\n"...)) {
		notes = append(notes, string(n.Type))
	}
	require.Equal(t, []string{"ready s1", "begun run_1", "end"}, notes, "the notebook has neither the agent's lines nor repeated reports")
}

func TestAbortedPendingPromptIsNotSent(t *testing.T) {
	t.Parallel()
	r := setup(t, `while read line; do echo "$line"; done`, nil)
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1", Content: "hello"})
	r.command(t, stdio.Command{Type: stdio.Interrupt, RunID: "run_2"}) // of another run
	r.command(t, stdio.Command{Type: stdio.Interrupt, RunID: "run_1"})
	r.expect(t, "begun run_1", "interrupted", "end cancelled aborted")
	r.start <- acpclient.Started{Session: "s1"}
	r.expect(t, "ready s1")
	require.NoError(t, r.stdin.Close())
	require.Equal(t, bridge.ExitDone, r.code(t), "the agent was sent nothing that it would repeat")
}

func TestFailedStartFailsPendingPrompt(t *testing.T) {
	t.Parallel()
	r := setup(t, respond, nil)
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1", Content: "hello"})
	r.command(t, stdio.Command{Type: "unheard-of"})
	require.Contains(t, <-r.stderr, "no such command: unheard-of") // the prompt waits by now
	r.start <- acpclient.Started{Err: errors.New("no such model")}
	r.expect(t, "begun run_1", "end failed the agent does not start: no such model")
	require.Equal(t, bridge.ExitFailed, r.code(t))

	r = setup(t, respond, nil)
	r.start <- acpclient.Started{Err: errors.New("no such model")}
	require.Equal(t, bridge.ExitFailed, r.code(t))
	require.Contains(t, <-r.stderr, "the agent does not start: no such model")
}

// ask requests permission for each prompt, and ends the turn with the answer.
const ask = `while read line; do case "$line" in
	*'"session/prompt#'*) id=${line#*'"id":"'}; id=${id%%\"*}
		echo '{"id":7,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"c1"},"options":[{"optionId":"yes","kind":"allow_once"}]}}';;
	*'"id":7'*'"yes"'*) echo '{"id":"'$id'","result":{"stopReason":"end_turn"}}';;
	*'"id":7'*cancelled*) echo '{"id":"'$id'","result":{"stopReason":"cancelled"}}';;
	esac; done`

const asks = `{"id":7,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"c1"},"options":[{"optionId":"yes","kind":"allow_once"}]}}`

func TestQuestionIsAnsweredOnceOrWithdrawn(t *testing.T) {
	t.Parallel()
	r := setup(t, ask, nil)
	r.start <- acpclient.Started{Session: "s1"}
	r.expect(t, "ready s1")
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1"})
	r.expect(t, "begun run_1", "asked c1", asks)
	answer := stdio.Command{Type: stdio.Answer, ID: "c1", Data: json.RawMessage(`{"option":"yes","allowed":true}`)}
	r.command(t, stdio.Command{Type: stdio.Answer, ID: "c2", Data: answer.Data}) // no such question
	r.command(t, answer)
	r.expect(t, "answered c1 allowed", `{"id":"session/prompt#1","result":{"stopReason":"end_turn"}}`, "end completed")
	r.command(t, answer) // too late

	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_2"})
	r.expect(t, "begun run_2", "asked c1", asks)
	r.command(t, stdio.Command{Type: stdio.Interrupt, RunID: "run_2"})
	r.expect(t, "interrupted", "answered c1 withdrawn", `{"id":"session/prompt#2","result":{"stopReason":"cancelled"}}`, "end cancelled aborted")
}

func TestAllowedToolsRaiseNoQuestion(t *testing.T) {
	t.Parallel()
	r := setup(t, ask, func(k *talk) { k.Allow = true })
	r.start <- acpclient.Started{Session: "s1"}
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1"})
	r.expect(t, "ready s1", "begun run_1", "asked c1", `{"id":"session/prompt#1","result":{"stopReason":"end_turn"}}`, "end completed")
}

func TestSilentAgentIsCancelled(t *testing.T) {
	t.Parallel()
	r := setup(t, `while read line; do case "$line" in *'"session/prompt#'*) id=${line#*'"id":"'};;
		*'"session/cancel"'*) echo '{"id":"'${id%%\"*}'","result":{"stopReason":"cancelled"}}';; esac; done`, func(k *talk) { k.limit = time.Millisecond })
	r.start <- acpclient.Started{Session: "s1"}
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1"})
	r.expect(t, "ready s1", "begun run_1", "given up: no word within 1ms",
		`{"id":"session/prompt#1","result":{"stopReason":"cancelled"}}`, "end failed no word within 1ms")
}

func TestAgentDeathIsReported(t *testing.T) {
	t.Parallel()
	r := setup(t, `read line; exit 7`, nil)
	r.start <- acpclient.Started{Session: "s1"}
	r.command(t, stdio.Command{Type: stdio.Prompt, RunID: "run_1"})
	r.expect(t, "ready s1", "begun run_1", "died the agent has ended: exit status 7")
	require.Equal(t, bridge.ExitDied, r.code(t))
}
