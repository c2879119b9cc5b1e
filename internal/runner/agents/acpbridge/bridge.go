package acpbridge

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

const (
	// DefaultTimeout is how long an agent may be silent while no tool runs and no question is
	// pending.
	DefaultTimeout = 10 * time.Minute
	interval       = 100 * time.Millisecond // between two checks of the deadlines
	quiet          = 300 * time.Millisecond // wait after the agent's last repeated message when it has loaded a session
)

// reasonDelivered: the agent had started the prompt before it died. The protocol gives a prompt no
// id by which it could be resumed.
const reasonDelivered = "already_delivered"

// Main runs the bridge between the runner and an agent. It reads stdio.Command lines from stdin;
// the environment configures the agent.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(acpformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose notebook it is")
	model := flags.String("model", "", "the model; empty leaves it to the agent")
	allow := flags.Bool("allow", false, "allow whatever the agent asks for")
	timeout := bridge.ModelTimeout(flags, DefaultTimeout)
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !stdio.SessionID.MatchString(*id) || flags.NArg() > 0 {
		fmt.Fprintln(stderr, acpformat.Command+": a session and no arguments are needed")
		return bridge.ExitUsage
	}
	argv, err := commandLine(os.Getenv(acpformat.EnvCommand))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", acpformat.Command, err)
		return bridge.ExitUsage
	}
	b := &talk{
		Bridge: acpclient.Bridge{
			Name: acpformat.Command, Noun: "agent", Stderr: stderr, Out: bridge.NewOutput(stdout),
			Allow: *allow, Silent: "the agent does not respond", Interval: interval,
		},
		model: *model, timeout: *timeout,
	}
	code, err := b.main(acpformat.NotebookPath(os.Getenv("HOME"), *id), argv, stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", acpformat.Command, err)
	}
	return code
}

// commandLine parses the agent's command: a JSON array of words, or a line for the shell.
func commandLine(line string) ([]string, error) {
	line = strings.TrimSpace(line)
	if line == "" {
		return nil, fmt.Errorf("there is no agent to start: set %s in the profile's environment or as a secret, such as %q", acpformat.EnvCommand, "opencode acp")
	}
	if !strings.HasPrefix(line, "[") {
		return []string{"/bin/sh", "-c", "exec " + line}, nil
	}
	var argv []string
	if err := json.Unmarshal([]byte(line), &argv); err != nil || len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%s is not a JSON array of strings", acpformat.EnvCommand)
	}
	return argv, nil
}

// talk is the connection to the agent. It implements [acpclient.Agent].
type talk struct {
	acpclient.Bridge
	model    string
	timeout  time.Duration
	notebook *notebook

	quietBy time.Time
	preface []string // texts that precede the next prompt
	lost    error    // why the earlier conversation was lost, until that is reported
	cost    float64  // cost of the session, as the agent reports it
	before  float64  // cost before the turn
	priced  bool     // the agent reports costs

	acpformat.Recorder
}

func (b *talk) main(name string, argv []string, stdin io.Reader) (int, error) {
	var err error
	if b.notebook, err = openNotebook(name); err != nil {
		return bridge.ExitFailed, err
	}
	return b.Run(b, b.notebook.Notebook, func() error { return b.start(argv) }, stdin)
}

func (b *talk) start(argv []string) error {
	workspace, err := os.Getwd()
	if err != nil {
		return err
	}
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name != acpformat.EnvCommand && name != acpformat.EnvTranscripts && name != acpformat.EnvServers && name != acpformat.EnvInstructions {
			env = append(env, e)
		}
	}
	mcp := json.RawMessage("[]")
	if s := os.Getenv(acpformat.EnvServers); s != "" {
		mcp = json.RawMessage(s)
	}
	where := acpclient.Where{Dir: workspace, Servers: mcp}
	memory := b.notebook.Session
	return b.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.Stderr}, func(ctx context.Context, peer *bridge.Peer) acpclient.Started {
		return begin(ctx, peer, where, memory, b.model)
	})
}

// begin performs the handshake and resumes the session of memory, or starts a new one.
func begin(ctx context.Context, peer *bridge.Peer, where acpclient.Where, memory, model string) acpclient.Started {
	can, err := acpclient.Initialize(ctx, peer)
	if err != nil {
		return acpclient.Started{Err: err}
	}
	var s acpclient.Started
	if memory != "" {
		var methods []string
		if can.Resume {
			methods = append(methods, acpformat.MethodResume)
		}
		if can.Load {
			methods = append(methods, acpformat.MethodLoad)
		}
		past := where
		past.SessionID = memory
		if s = acpclient.Recall(ctx, peer, past, methods...); s.Err != nil {
			return s
		}
	}
	if s.Session == "" {
		if s.Session, err = acpclient.NewSession(ctx, peer, where); err != nil {
			return acpclient.Started{Err: err}
		}
	}
	if model != "" {
		if _, err := peer.Call(ctx, acpformat.MethodModel, map[string]string{"sessionId": s.Session, "modelId": model}); err != nil {
			return acpclient.Started{Err: fmt.Errorf("take the model %s: %w", model, err)}
		}
	}
	s.Images = can.Images
	return s
}

func (b *talk) block(block conversation.Block) {
	b.Note(stdio.Note{Type: acpformat.NoteBlock, Data: acpformat.Encode(block)})
}

// system shows a message to the people of the session.
func (b *talk) system(subtype, message string) {
	at := acpclient.Now()
	b.block(conversation.Block{
		ID: fmt.Sprintf("%s/%s/%d", subtype, b.Turn.Run, at.UnixMilli()), Type: conversation.System, Status: conversation.Complete,
		CreatedAt: at, Subtype: subtype, Message: acpformat.Bounded(message),
	})
}

// Ready records the session, and prepares the texts that precede its first prompt.
func (b *talk) Ready(s acpclient.Started) {
	b.Note(stdio.Note{Type: stdio.NoteSession, ID: s.Session})
	if !s.Loaded {
		if instructions := os.Getenv(acpformat.EnvInstructions); instructions != "" {
			b.preface = append(b.preface, "Instructions for this conversation:\n\n"+instructions)
		}
	}
	if s.Lost != nil {
		if past := b.notebook.summary(); past != "" {
			b.preface = append(b.preface, "The earlier part of this conversation, which you no longer remember:\n\n"+past)
			b.lost = s.Lost
		}
	}
	if s.Loaded {
		b.quietBy = time.Now().Add(quiet)
	}
}

// Repeating reports whether the agent still repeats the conversation that it has loaded.
func (b *talk) Repeating() bool { return time.Now().Before(b.quietBy) }

// Repeated reads a line outside a turn.
func (b *talk) Repeated(acpclient.Said) {
	if b.Repeating() {
		b.quietBy = time.Now().Add(quiet)
	}
}

// Texts returns the prompt, after the texts that a new session starts with.
func (b *talk) Texts(content string) []string {
	if b.lost != nil {
		b.system("memory_retold", fmt.Sprintf("The agent lost its history (%v); it was sent again.", b.lost))
		b.lost = nil
	}
	var texts []string
	for _, p := range b.preface {
		texts = append(texts, p+"\n\n")
	}
	b.preface = nil
	return append(texts, content)
}

// Known returns the recorded end of a run.
func (b *talk) Known(run string) (json.RawMessage, bool) {
	past, ok := b.notebook.runs[run]
	if !ok || !past.ended && !past.answered {
		return nil, false
	}
	end := past.end
	if !past.ended {
		end = acpformat.EndNote{At: acpclient.Now(), Outcome: session.OutcomeUnknown, Reason: reasonDelivered}
	}
	return acpformat.Encode(end), true
}

// Begun records the start of a turn.
func (b *talk) Begun(c stdio.Command) {
	b.before = b.cost
	b.Recorder = acpformat.Recorder{Prefix: c.RunID}
	b.notebook.runs[c.RunID] = &pastRun{}
	b.Note(stdio.Note{Type: stdio.NoteRun, RunID: c.RunID})
	b.block(conversation.Block{
		ID: c.RunID + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: c.At,
		Content: c.Content, PromptID: c.PromptID, Author: c.Author,
	})
}

// Interrupted records that the turn is aborted.
func (b *talk) Interrupted() { b.Recorder.Interrupted = true }

// Answered records the decision about a permission request.
func (b *talk) Answered(call string, d acpclient.Decision) {
	b.Note(stdio.Note{Type: acpformat.NoteAnswered, ID: call})
	if d == acpclient.Allowed {
		b.running(call)
	}
}

// running records that a call that waited for permission has begun.
func (b *talk) running(call string) {
	if o := b.Find(call); o != nil && o.Block.Status == conversation.Pending {
		o.Block.Status = conversation.Running
		b.block(o.Block)
	}
}

// Poll does nothing: the agent reports everything over the protocol.
func (b *talk) Poll() {}

// Updated prints an update, after the blocks that it completes.
func (b *talk) Updated(s acpclient.Said) {
	var p acpformat.Params
	if acpformat.Decode(s.Params, &p) {
		if p.Update.Cost != nil {
			b.cost, b.priced = p.Update.Cost.Amount, true
		}
		events, _ := b.Update(p.Update, acpclient.Now())
		b.note(events)
	}
	b.Out.Raw(s.Line)
}

// note writes notes of the blocks that have changed, except text, which is streamed.
func (b *talk) note(events []conversation.Event) {
	for _, e := range events {
		switch d := e.Data.(type) {
		case conversation.BlockStart:
			if d.Block.Type == conversation.ToolUse {
				b.block(d.Block)
			}
		case conversation.BlockUpdate:
			if o := b.Find(d.BlockID); o != nil {
				b.block(o.Block)
			}
		case conversation.BlockComplete:
			b.block(d.Block)
		}
	}
}

// Asked records the call that requests permission.
func (b *talk) Asked(params json.RawMessage) (call string, options json.RawMessage) {
	var p acpformat.Params
	acpformat.Decode(params, &p)
	if call = p.ToolCall.ID; call != "" {
		b.note(b.Call(p.ToolCall, true, acpclient.Now()))
	}
	if b.Allow {
		b.running(call)
	}
	return call, p.Options
}

// MaxSilence returns how long the agent may be silent: without a limit while a tool runs.
func (b *talk) MaxSilence() time.Duration {
	if b.busy() {
		return 0
	}
	return b.timeout
}

// RecordTimeout does nothing: the end of the turn contains the reason.
func (b *talk) RecordTimeout() {}

// busy reports whether a tool is running.
func (b *talk) busy() bool {
	return slices.ContainsFunc(b.Open, func(o *acpformat.OpenBlock) bool { return o.Block.Status == conversation.Running })
}

// Finished ends the turn with the response to its prompt.
func (b *talk) Finished(m bridge.Message) {
	outcome, reason, failed := b.Turn.Ended(m)
	if failed {
		b.Failed(reason)
		return
	}
	if outcome == session.OutcomeCompleted {
		b.note(b.CloseText(acpclient.Now()))
	}
	b.end(outcome, reason, acpformat.Usage(m.Result))
}

// Failed ends the turn with an error.
func (b *talk) Failed(message string) {
	b.note(b.Cut(acpclient.Now()))
	b.system("error", message)
	b.Ended(session.OutcomeFailed, acpformat.Bounded(message))
}

// Ended ends a turn without usage.
func (b *talk) Ended(outcome session.Outcome, reason string) { b.end(outcome, reason, usage.Usage{}) }

func (b *talk) end(outcome session.Outcome, reason string, used usage.Usage) {
	b.note(b.Cut(acpclient.Now()))
	used.ToolCalls, used.CostUSD, used.CostUnknown = b.Calls, max(0, b.cost-b.before), !b.priced
	end := acpformat.EndNote{At: acpclient.Now(), Outcome: outcome, Reason: reason, Usage: used.Bounded(), Model: b.model, Status: b.Turn.Refused}
	past := b.notebook.runs[b.Turn.Run]
	past.ended, past.end = true, end
	b.End(acpformat.Encode(end))
}
