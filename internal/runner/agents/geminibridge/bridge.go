package geminibridge

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpbridge"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// DefaultSilence is how long the program may be silent while it waits for the model. It retries
	// silently, apparently without limit.
	DefaultSilence = 5 * time.Minute
	// delegated is how many times longer a subagent may take between two things that it writes down.
	delegated = 6
	// pollInterval is how often chat files are read, in addition to each time that the program
	// prints.
	pollInterval = 50 * time.Millisecond
	pastTimeout  = 3 * time.Second // for what the program repeats when it has loaded a session
)

// errSilent is why a turn is given up.
var errSilent = errors.New("the model gives no answer")

// Main is the bridge between the runner and the program, whose argv follows the flags. Its stdin
// has stdio.Command lines, its environment is the program's.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(geminiformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose journal it is")
	allow := flags.Bool("allow", false, "allow whatever the program asks for")
	silence := flags.Duration("silence", bridge.Patience(DefaultSilence), "how long the model may give no answer")
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !stdio.SessionID.MatchString(*id) || flags.NArg() == 0 || *silence <= 0 {
		fmt.Fprintln(stderr, geminiformat.Command+": a session, a positive silence and the program are needed")
		return bridge.ExitUsage
	}
	b := &talk{
		Client: acpbridge.Client{Name: geminiformat.Command, Stderr: stderr},
		allow:  *allow, silence: *silence, out: bridge.NewOutput(stdout), home: os.Getenv("HOME"),
	}
	code, err := b.main(*id, flags.Args(), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", geminiformat.Command, err)
	}
	return code
}

// talk is the conversation with the program. Everything but the reader of its stdout and the
// requests that wait runs in one goroutine.
type talk struct {
	acpbridge.Client
	allow     bool
	silence   time.Duration
	out       *bridge.Output
	home      string
	workspace string
	journal   *journal

	past   int // updates that are still to come of what it has loaded
	pastBy time.Time

	order
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (b *talk) main(id string, argv []string, stdin io.Reader) (int, error) {
	workspace, err := os.Getwd()
	if err != nil {
		return bridge.ExitFailed, err
	}
	b.workspace = workspace
	if b.journal, err = openJournal(geminiformat.JournalPath(b.home, id)); err != nil {
		return bridge.ExitFailed, err
	}
	code := bridge.ExitFailed
	if err = b.start(argv); err == nil {
		b.out.Note(stdio.Note{Type: noteSession, ID: b.journal.session})
		code = b.listen(b.Commands(stdin))
		b.Stop()
	}
	return code, errors.Join(err, b.out.Err(), b.journal.close())
}

// start starts the program with nothing but the memory of the journal.
func (b *talk) start(argv []string) error {
	dir := filepath.Join(b.home, ".gemini")
	restored, err := b.journal.memory.restore(dir, b.workspace, b.journal.session)
	if err != nil {
		return err
	}
	env, err := environment(dir)
	if err != nil {
		return err
	}
	b.order = order{news: newNews(), finished: map[string]struct{}{}, open: map[string]bool{}}
	if restored != "" {
		b.past = b.journal.memory.frames()
		b.news.remembers(b.journal.memory)
		if info, err := os.Stat(restored); err == nil {
			b.chats = &tail{name: restored, offset: info.Size()}
		}
	}
	where := acpbridge.Where{Dir: b.workspace, Servers: json.RawMessage("[]")}
	memory := b.journal.session
	return b.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.Stderr}, func(ctx context.Context, peer *bridge.Peer) acpbridge.Started {
		return begin(ctx, peer, where, memory)
	})
}

// begin performs the handshake and resumes the session of memory, or starts a new one.
func begin(ctx context.Context, peer *bridge.Peer, where acpbridge.Where, memory string) acpbridge.Started {
	can, err := acpbridge.Initialize(ctx, peer)
	if err != nil {
		return acpbridge.Started{Err: err}
	}
	var s acpbridge.Started
	if memory != "" {
		past := where
		past.SessionID = memory
		s = acpbridge.Recall(ctx, peer, past, acpformat.MethodLoad)
	}
	if s.Session == "" && s.Err == nil {
		s.Session, s.Err = acpbridge.NewSession(ctx, peer, where)
	}
	s.Version = can.Version
	return s
}

// listen serves the runner until stdin ends or the program does.
func (b *talk) listen(commands <-chan stdio.Command) int {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(c)
		case f := <-b.Lines:
			b.frame(f)
		case s := <-b.Ready:
			if !b.begun(s) {
				return bridge.ExitFailed
			}
		case <-ticker.C:
			if !b.tick() {
				return bridge.ExitFailed
			}
		case <-b.Child.Done():
			b.died()
			return bridge.ExitDied
		}
		if b.out.Err() != nil {
			return bridge.ExitFailed
		}
	}
}

// note writes a line into the journal, and only then prints it.
func (b *talk) note(n stdio.Note) {
	b.journal.out.Note(n)
	b.out.Note(n)
}

// begun takes up that the program is ready, or not.
func (b *talk) begun(s acpbridge.Started) bool {
	if s.Err != nil {
		if b.Queued != nil {
			b.prompted(*b.Queued)
			b.failed(fmt.Sprintf("the program does not start: %v", s.Err))
		}
		return false
	}
	b.Session = s.Session
	if !s.Loaded {
		b.past = 0
		b.chats = nil
		b.news = newNews()
	}
	if s.Session != b.journal.session || s.Loaded {
		b.note(stdio.Note{Type: noteSession, ID: s.Session, Data: geminiformat.Data(sessionNote{At: now(), Version: s.Version, Loaded: s.Loaded})})
	}
	if s.Lost != nil {
		b.note(stdio.Note{Type: geminiformat.NoteLost, Message: fmt.Sprintf("The agent could not load its history and starts from scratch: %v", s.Lost), Data: geminiformat.Data(geminiformat.Stamp{At: now()})})
	}
	b.pastBy = time.Now().Add(pastTimeout)
	b.deliver()
	return true
}

// command does what the runner wants.
func (b *talk) command(c stdio.Command) {
	switch c.Type {
	case stdio.Prompt:
		b.prompt(c)
	case stdio.Interrupt:
		b.interrupt(c.RunID)
	case stdio.Answer:
		b.answer(c)
	default:
		fmt.Fprintf(b.Stderr, "%s: no such command: %s\n", geminiformat.Command, c.Type)
	}
}

// prompt begins a turn, as soon as that can be.
func (b *talk) prompt(c stdio.Command) {
	if b.Queue(c) {
		b.deliver()
	}
}

// reasonDelivered: the agent had started the prompt before it died. It stores no id of the prompt
// by which it could be resumed.
const reasonDelivered = "already_delivered"

// deliver hands the prompt over that waits, once the program is ready for it.
func (b *talk) deliver() {
	if b.Queued == nil || b.Session == "" || (b.past > 0 && time.Now().Before(b.pastBy)) {
		return
	}
	c := *b.Queued
	if b.known(c) {
		b.Queued = nil
		return
	}
	b.prompted(c)
	b.Prompt(b.expand(c.Content))
}

// known reports whether the run is known, and if so reports its outcome again: a run executes once.
func (b *talk) known(c stdio.Command) bool {
	if past, ok := b.journal.runs[c.RunID]; ok && (past.ended || past.answered) {
		end := geminiformat.EndNote{At: now(), Outcome: past.outcome, Reason: past.reason}
		if !past.ended {
			end.Outcome, end.Reason = session.OutcomeUnknown, reasonDelivered
		}
		b.out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: c.RunID, Data: geminiformat.Data(end)})
		return true
	}
	return false
}

// prompted notes that a turn begins.
func (b *talk) prompted(c stdio.Command) {
	b.Begin(c.RunID)
	b.journal.runs[c.RunID] = &pastRun{}
	b.begin()
	at := c.At
	if at.IsZero() {
		at = now()
	}
	b.note(stdio.Note{Type: geminiformat.NotePrompt, RunID: c.RunID, Data: geminiformat.Data(geminiformat.PromptNote{
		At: at, PromptID: c.PromptID, Author: c.Author, Content: c.Content,
	})})
}

// interrupt breaks the turn off.
func (b *talk) interrupt(run string) {
	switch {
	case b.Queued != nil && b.Queued.RunID == run && b.known(*b.Queued):
		b.Queued = nil
	case b.Queued != nil && b.Queued.RunID == run:
		b.prompted(*b.Queued)
		b.note(stdio.Note{Type: geminiformat.NoteInterrupt, RunID: run})
		b.end(session.OutcomeCancelled, session.ReasonAborted)
	case b.Turn != nil && b.Turn.Run == run && !b.Turn.Interrupted:
		b.Turn.Interrupted = true
		b.note(stdio.Note{Type: geminiformat.NoteInterrupt, RunID: run})
		b.cancel()
	}
}

// cancel asks the program to abort the turn, and withdraws its questions. The program ignores a
// cancel that arrives before it has accepted the prompt, so it is repeated.
func (b *talk) cancel() {
	for id := range b.Turn.Asked {
		b.Reply(id, "")
		b.note(stdio.Note{Type: geminiformat.NoteAnswered, ID: id, Data: geminiformat.Data(false)})
	}
	b.Cancel()
}

// answer answers a question of the program. An answer to a question that is no longer pending is
// dropped.
func (b *talk) answer(c stdio.Command) {
	var d acpformat.AnswerData
	if b.Turn == nil || b.Turn.Asked[c.ID] == nil || !geminiformat.Decode(c.Data, &d) {
		return
	}
	b.Turn.Heard = time.Now()
	b.note(stdio.Note{Type: geminiformat.NoteAnswered, ID: c.ID, Data: geminiformat.Data(d.Allowed)})
	if !d.Allowed {
		delete(b.open, c.ID) // nothing more is said of it
	}
	b.Reply(c.ID, d.Option)
}

// frame prints a line of the program, between the records of its chat file that precede and follow
// it.
func (b *talk) frame(f acpbridge.Said) {
	if b.Session == "" || b.Turn == nil {
		b.out.Raw(f.Line)
		b.repeated(f.Message)
		b.Refuse(f.Message)
		return
	}
	b.Turn.Heard = time.Now()
	b.poll()
	var p geminiformat.UpdateParams
	switch {
	case f.Method == acpformat.MethodUpdate && geminiformat.Decode(f.Params, &p):
		b.emit(b.before(p.Update))
		b.tool(p.Update.Call, p.Update.Kind, false)
		b.out.Raw(f.Line)
		b.emit(b.behind(p.Update))
	case f.Method == acpformat.MethodPermission && f.IsRequest():
		b.permission(f)
	case f.IsEnd():
		b.out.Raw(f.Line)
		b.finish(f.Message)
	default:
		b.out.Raw(f.Line)
		b.Refuse(f.Message)
	}
}

// permission passes a question on. Where everything is allowed it is answered here: a program that has
// loaded a session asks in spite of its mode.
func (b *talk) permission(f acpbridge.Said) {
	var p geminiformat.UpdateParams
	geminiformat.Decode(f.Params, &p)
	var c geminiformat.Call
	geminiformat.Decode(p.ToolCall, &c)
	b.emit(b.answers())
	b.tool(c, "tool_call", !b.allow)
	switch {
	case b.allow:
		b.Permit(f.ID, p.Options)
	case c.ID == "": // so that no person can be asked about it
		b.Withdraw(f.ID)
	default:
		b.Turn.Asked[c.ID] = f.ID
		b.out.Raw(f.Line)
	}
}

// repeated counts what the program says of the past that it has loaded.
func (b *talk) repeated(m bridge.Message) {
	var p geminiformat.UpdateParams
	if b.past == 0 || m.Method != acpformat.MethodUpdate || !geminiformat.Decode(m.Params, &p) {
		return
	}
	switch p.Update.Kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call":
		b.past--
		b.deliver()
	}
}

// tool notes that a call has begun, where the program says so for the first time.
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
		b.note(stdio.Note{Type: geminiformat.NoteTool, ID: c.ID, Data: geminiformat.Data(geminiformat.ToolNote{At: now(), Name: name, Title: c.Title, Asked: asked})})
	}
}

func (b *talk) emit(notes []stdio.Note) {
	for _, n := range notes {
		b.note(n)
	}
}

// poll reads what the chat files have gained.
func (b *talk) poll() {
	if b.chats == nil && b.Session != "" {
		if name := chatOf(filepath.Join(b.home, ".gemini"), b.Session); name != "" {
			b.chats = &tail{name: name}
		}
	}
	notes, heard := b.gained(filepath.Join(b.home, ".gemini", "tmp", slug, "chats", b.Session))
	if heard && b.Turn != nil {
		b.Turn.Heard = time.Now()
	}
	b.emit(notes)
}

// tick reads the chat files and checks the deadlines. False means that the program has not acted in
// time on the abort of its turn.
func (b *talk) tick() bool {
	b.deliver()
	if b.Turn == nil || b.Session == "" {
		return true
	}
	b.poll()
	again, over := b.Turn.Look()
	switch {
	case over:
		b.finish(bridge.Message{})
		return false
	case again:
		b.cancel()
	}
	if b.Turn.GaveUp != nil {
		return true
	}
	limit := b.silence
	for _, subagent := range b.open {
		if !subagent {
			return true // a tool takes as long as it takes
		}
		limit = delegated * b.silence
	}
	if len(b.Turn.Asked) == 0 && !b.Turn.Interrupted && time.Since(b.Turn.Heard) > limit {
		b.GiveUp(fmt.Errorf("%w within %s", errSilent, limit))
		b.note(stdio.Note{Type: stdio.NoteDeadline, RunID: b.Turn.Run, Message: b.Turn.GaveUp.Error(), Data: geminiformat.Data(geminiformat.Stamp{At: now()})})
		b.cancel()
	}
	return true
}

// finish ends the turn, as the answer to its prompt says.
func (b *talk) finish(m bridge.Message) {
	b.poll()
	b.emit(b.rest())
	outcome, reason, failed := b.Turn.Ended(m)
	if failed && b.Turn.GaveUp == nil { // else the deadline has been noted
		b.failed(plain(reason))
		return
	}
	b.partial(outcome == session.OutcomeCompleted)
	b.end(outcome, reason)
}

// plain is what the model's server has said when it refused, which the program hands on as it came.
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

// failed ends the turn with what went wrong.
func (b *talk) failed(message string) {
	b.partial(false)
	b.note(stdio.Note{Type: stdio.NoteFailed, RunID: b.Turn.Run, Message: message, Data: geminiformat.Data(geminiformat.Stamp{At: now()})})
	b.end(session.OutcomeFailed, geminiformat.Bounded(message))
}

// partial notes what the agent has said without writing it down.
func (b *talk) partial(whole bool) {
	text, thoughts := b.unwritten()
	if text == "" && len(thoughts) == 0 {
		return
	}
	b.note(stdio.Note{Type: geminiformat.NotePartial, Data: geminiformat.Data(geminiformat.PartialNote{At: now(), Text: text, Thoughts: thoughts, Complete: whole})})
}

// end is the last line of a turn: the journal is whole before it is printed.
func (b *talk) end(outcome session.Outcome, reason string) {
	end := geminiformat.EndNote{At: now(), Outcome: outcome, Reason: reason}
	past := b.journal.runs[b.Turn.Run]
	past.ended, past.outcome, past.reason = true, outcome, reason
	b.note(stdio.Note{Type: geminiformat.NoteEnd, RunID: b.Turn.Run, Data: geminiformat.Data(end)})
	b.Turn = nil
}

// died says that the program has ended by itself.
func (b *talk) died() {
	b.out.Note(stdio.Note{Type: stdio.NoteDied, Message: "the program has ended: " + b.Child.Ended()})
}
