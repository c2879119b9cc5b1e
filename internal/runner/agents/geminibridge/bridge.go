package geminibridge

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// DefaultTimeout is how long the program may be silent while it waits for the model. It retries
	// silently, apparently without a limit.
	DefaultTimeout = 5 * time.Minute
	// delegated is the factor by which a subagent may take longer between two records.
	delegated = 6
	// pollInterval is how often chat files are read, in addition to each line that the program
	// prints.
	pollInterval = 50 * time.Millisecond
	pastTimeout  = 3 * time.Second // for the messages that the program repeats when it has loaded a session
)

// Main runs the bridge between the runner and the program, whose argv follows the flags. It reads
// stdio.Command lines from stdin; its environment is passed to the program.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(geminiformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose notebook it is")
	allow := flags.Bool("allow", false, "allow whatever the program asks for")
	timeout := bridge.ModelTimeout(flags, DefaultTimeout)
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !stdio.SessionID.MatchString(*id) || flags.NArg() == 0 {
		fmt.Fprintln(stderr, geminiformat.Command+": a session and the program are needed")
		return bridge.ExitUsage
	}
	b := &talk{
		Bridge: acpclient.Bridge{
			Name: geminiformat.Command, Noun: "program", Stderr: stderr, Out: bridge.NewOutput(stdout),
			Allow: *allow, Silent: "the model gives no answer", Interval: pollInterval,
		},
		timeout: *timeout, home: os.Getenv("HOME"),
	}
	code, err := b.main(*id, flags.Args(), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", geminiformat.Command, err)
	}
	return code
}

// talk is the connection to the program. It implements [acpclient.Agent].
type talk struct {
	acpclient.Bridge
	timeout   time.Duration
	home      string
	workspace string
	notebook  *notebook

	past   int // number of repeated updates still to come
	pastBy time.Time

	order
}

func (b *talk) main(id string, argv []string, stdin io.Reader) (int, error) {
	workspace, err := os.Getwd()
	if err != nil {
		return bridge.ExitFailed, err
	}
	b.workspace = workspace
	if b.notebook, err = openNotebook(geminiformat.NotebookPath(b.home, id)); err != nil {
		return bridge.ExitFailed, err
	}
	return b.Run(b, b.notebook.Notebook, func() error { return b.start(argv) }, stdin)
}

// start starts the program with only the memory of the notebook.
func (b *talk) start(argv []string) error {
	dir := filepath.Join(b.home, ".gemini")
	restored, err := restore(&b.notebook.memory, dir, b.workspace, b.notebook.Session)
	if err != nil {
		return err
	}
	env, err := environment(dir)
	if err != nil {
		return err
	}
	b.order = order{changes: newChatChanges(), finished: map[string]struct{}{}, open: map[string]bool{}}
	if restored != "" {
		b.past = b.notebook.memory.Frames()
		b.changes.remembers(b.notebook.memory)
		if info, err := os.Stat(restored); err == nil {
			b.chats = &tail{name: restored, offset: info.Size()}
		}
	}
	where := acpclient.Where{Dir: b.workspace, Servers: json.RawMessage("[]")}
	memory := b.notebook.Session
	return b.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.Stderr}, func(ctx context.Context, peer *bridge.Peer) acpclient.Started {
		return begin(ctx, peer, where, memory)
	})
}

// begin performs the handshake and resumes the session of memory, or starts a new one.
func begin(ctx context.Context, peer *bridge.Peer, where acpclient.Where, memory string) acpclient.Started {
	can, err := acpclient.Initialize(ctx, peer)
	if err != nil {
		return acpclient.Started{Err: err}
	}
	var s acpclient.Started
	if memory != "" {
		past := where
		past.SessionID = memory
		s = acpclient.Recall(ctx, peer, past, acpformat.MethodLoad)
	}
	if s.Session == "" && s.Err == nil {
		s.Session, s.Err = acpclient.NewSession(ctx, peer, where)
	}
	s.Version, s.Images = can.Version, can.Images
	return s
}

// Ready records the session, and the loss of the previous one, if any.
func (b *talk) Ready(s acpclient.Started) {
	if !s.Loaded {
		b.past = 0
		b.chats = nil
		b.changes = newChatChanges()
	}
	if s.Session != b.notebook.Session || s.Loaded {
		b.Note(stdio.Note{Type: stdio.NoteSession, ID: s.Session, Data: geminiformat.Data(sessionNote{At: acpclient.Now(), Version: s.Version, Loaded: s.Loaded})})
	}
	if s.Lost != nil {
		b.Note(stdio.Note{Type: geminiformat.NoteLost, Message: fmt.Sprintf("The agent could not load its history and starts from scratch: %v", s.Lost), Data: geminiformat.Data(geminiformat.Stamp{At: acpclient.Now()})})
	}
	b.pastBy = time.Now().Add(pastTimeout)
}

// Repeating reports whether the program is still repeating the session that it has loaded.
func (b *talk) Repeating() bool { return b.past > 0 && time.Now().Before(b.pastBy) }

// reasonDelivered: the agent had started the prompt before it died. The agent stores no id by which
// the prompt could be resumed.
const reasonDelivered = "already_delivered"

// Texts returns the prompt, or the prompt of a user's command.
func (b *talk) Texts(content string) []string { return []string{b.expand(content)} }

// Known returns the recorded end of a run.
func (b *talk) Known(run string) (json.RawMessage, bool) {
	past, ok := b.notebook.runs[run]
	if !ok || !past.ended && !past.answered {
		return nil, false
	}
	end := geminiformat.EndNote{At: acpclient.Now(), Outcome: past.outcome, Reason: past.reason, Status: past.status}
	if !past.ended {
		end.Outcome, end.Reason = session.OutcomeUnknown, reasonDelivered
	}
	return geminiformat.Data(end), true
}

// Begun records the start of a turn.
func (b *talk) Begun(c stdio.Command) {
	b.notebook.runs[c.RunID] = &pastRun{}
	b.begin()
	b.Note(stdio.Note{Type: geminiformat.NotePrompt, RunID: c.RunID, Data: geminiformat.Data(geminiformat.PromptNote{
		At: c.At, PromptID: c.PromptID, Author: c.Author, Content: c.Content,
	})})
}

// Interrupted records that the turn is aborted.
func (b *talk) Interrupted() {
	b.Note(stdio.Note{Type: geminiformat.NoteInterrupt, RunID: b.Turn.Run})
}

// Answered records the decision about a permission request.
func (b *talk) Answered(call string, d acpclient.Decision) {
	b.Note(stdio.Note{Type: geminiformat.NoteAnswered, ID: call, Data: geminiformat.Data(d == acpclient.Allowed)})
	if d == acpclient.Rejected {
		delete(b.open, call) // no more updates of it follow
	}
}

// Updated prints an update, between the records of the chat file that precede and follow it.
func (b *talk) Updated(s acpclient.Said) {
	var p geminiformat.UpdateParams
	if !geminiformat.Decode(s.Params, &p) {
		b.Out.Raw(s.Line)
		b.Refuse(s.Message)
		return
	}
	b.emit(b.before(p.Update))
	b.tool(p.Update.Call, p.Update.Kind, false)
	b.Out.Raw(s.Line)
	b.emit(b.printed(p.Update))
}

// Asked records the call that requests permission. After loading a session, the program asks even
// if everything is allowed, in any mode.
func (b *talk) Asked(params json.RawMessage) (call string, options json.RawMessage) {
	var p geminiformat.UpdateParams
	geminiformat.Decode(params, &p)
	var c geminiformat.Call
	geminiformat.Decode(p.ToolCall, &c)
	b.emit(b.answers())
	b.tool(c, "tool_call", !b.Allow)
	return c.ID, p.Options
}

// Repeated counts the messages that the program repeats of the session that it has loaded.
func (b *talk) Repeated(s acpclient.Said) {
	var p geminiformat.UpdateParams
	if b.past == 0 || s.Method != acpformat.MethodUpdate || !geminiformat.Decode(s.Params, &p) {
		return
	}
	switch p.Update.Kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call":
		b.past--
	}
}

// tool records the start of a call when the program first reports it.
func (b *talk) tool(c geminiformat.Call, kind string, asked bool) {
	if kind != "tool_call" && kind != "tool_call_update" || c.ID == "" {
		return
	}
	if c.Status == "completed" || c.Status == "failed" {
		delete(b.open, c.ID)
	} else if _, ok := b.open[c.ID]; !ok {
		name := geminiformat.ToolName(c.ID)
		b.open[c.ID] = name == geminiformat.SubagentTool
		if name == geminiformat.SubagentTool {
			b.delegate = c.ID
		}
		b.Note(stdio.Note{Type: geminiformat.NoteTool, ID: c.ID, Data: geminiformat.Data(geminiformat.ToolNote{At: acpclient.Now(), Name: name, Title: c.Title, Asked: asked})})
	}
}

func (b *talk) emit(notes []stdio.Note) {
	for _, n := range notes {
		b.Note(n)
	}
}

// Poll prints the new records of the chat files.
func (b *talk) Poll() {
	if b.chats == nil && b.Session != "" {
		if name := chatOf(filepath.Join(b.home, ".gemini"), b.Session); name != "" {
			b.chats = &tail{name: name}
		}
	}
	notes, changed := b.gained(filepath.Join(b.home, ".gemini", "tmp", slug, "chats", b.Session))
	if changed && b.Turn != nil {
		b.Turn.LastLine = time.Now()
	}
	b.emit(notes)
}

// MaxSilence returns how long the program may be silent: longer while only subagents work, and without
// a limit while a tool runs.
func (b *talk) MaxSilence() time.Duration {
	limit := b.timeout
	for _, subagent := range b.open {
		if !subagent {
			return 0 // a running tool has no limit
		}
		limit = delegated * b.timeout
	}
	return limit
}

// RecordTimeout records the exceeded timeout.
func (b *talk) RecordTimeout() {
	b.Note(stdio.Note{Type: stdio.NoteDeadline, RunID: b.Turn.Run, Message: b.Turn.TimedOut.Error(), Data: geminiformat.Data(geminiformat.Stamp{At: acpclient.Now()})})
}

// Finished ends the turn with the response to its prompt.
func (b *talk) Finished(m bridge.Message) {
	b.Poll()
	b.emit(b.rest())
	outcome, reason, failed := b.Turn.Ended(m)
	if failed && b.Turn.TimedOut == nil { // otherwise RecordTimeout has recorded the timeout
		b.Failed(plain(reason))
		return
	}
	b.partial(outcome == session.OutcomeCompleted)
	b.Ended(outcome, reason)
}

// plain returns the message of a model API error, which the program forwards unchanged.
func plain(reason string) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(reason), &answer) == nil && answer.Error.Message != "" {
		return answer.Error.Message
	}
	return reason
}

// Failed ends the turn with an error.
func (b *talk) Failed(message string) {
	b.partial(false)
	b.Note(stdio.Note{Type: stdio.NoteFailed, RunID: b.Turn.Run, Message: message, Data: geminiformat.Data(geminiformat.Stamp{At: acpclient.Now()})})
	b.Ended(session.OutcomeFailed, geminiformat.Bounded(message))
}

// partial records text that the agent has printed and not stored.
func (b *talk) partial(whole bool) {
	text, thoughts := b.unwritten()
	if text == "" && len(thoughts) == 0 {
		return
	}
	b.Note(stdio.Note{Type: geminiformat.NotePartial, Data: geminiformat.Data(geminiformat.PartialNote{At: acpclient.Now(), Text: text, Thoughts: thoughts, Complete: whole})})
}

// Ended ends the turn.
func (b *talk) Ended(outcome session.Outcome, reason string) {
	past := b.notebook.runs[b.Turn.Run]
	past.ended, past.outcome, past.reason, past.status = true, outcome, reason, b.Turn.Refused
	b.End(geminiformat.Data(geminiformat.EndNote{At: acpclient.Now(), Outcome: outcome, Reason: reason, Status: b.Turn.Refused}))
}
