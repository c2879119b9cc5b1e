package acpbridge

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// DefaultSilence is how long an agent may be silent while no tool runs and no question is
	// pending.
	DefaultSilence = 10 * time.Minute
	tickInterval   = 100 * time.Millisecond
	quiet          = 300 * time.Millisecond // after what an agent repeats when it has loaded a session
)

// reasonDelivered: the agent had started the prompt before it died. The protocol gives a prompt no
// id by which it could be resumed.
const reasonDelivered = "already_delivered"

// Main is the bridge between the runner and an agent. Its stdin has stdio.Command lines; the
// environment says what the agent is.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(acpformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose journal it is")
	model := flags.String("model", "", "the model; empty leaves it to the agent")
	allow := flags.Bool("allow", false, "allow whatever the agent asks for")
	silence := flags.Duration("silence", bridge.Patience(DefaultSilence), "how long the agent may say nothing")
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !stdio.SessionID.MatchString(*id) || flags.NArg() > 0 || *silence <= 0 {
		fmt.Fprintln(stderr, acpformat.Command+": a session and a positive silence are needed")
		return bridge.ExitUsage
	}
	argv, err := commandLine(os.Getenv(acpformat.EnvCommand))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", acpformat.Command, err)
		return bridge.ExitUsage
	}
	b := &talk{
		Client: Client{Name: acpformat.Command, Stderr: stderr},
		model:  *model, allow: *allow, silence: *silence, out: bridge.NewOutput(stdout),
	}
	code, err := b.main(acpformat.JournalPath(os.Getenv("HOME"), *id), argv, stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", acpformat.Command, err)
	}
	return code
}

// commandLine is the agent's command: a JSON array of words, or a line for the shell.
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

// talk is the conversation with the agent. Everything but the reader of its stdout and the requests
// that wait runs in one goroutine.
type talk struct {
	Client
	model   string
	allow   bool
	silence time.Duration
	out     *bridge.Output
	journal *journal

	quietBy time.Time
	preface []string // what the next prompt is to be led in by
	lost    error    // why it has lost the earlier conversation, until that is reported
	cost    float64  // of the session, as the agent says
	before  float64  // what it was before the turn

	acpformat.Recorder
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (b *talk) main(name string, argv []string, stdin io.Reader) (int, error) {
	var err error
	if b.journal, err = openJournal(name); err != nil {
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
	where := Where{Dir: workspace, Servers: mcp}
	memory := b.journal.session
	return b.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.Stderr}, func(ctx context.Context, peer *bridge.Peer) Started {
		return begin(ctx, peer, where, memory, b.model)
	})
}

// begin performs the handshake and resumes the session of memory, or starts a new one.
func begin(ctx context.Context, peer *bridge.Peer, where Where, memory, model string) Started {
	can, err := Initialize(ctx, peer)
	if err != nil {
		return Started{Err: err}
	}
	var s Started
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
		if s = Recall(ctx, peer, past, methods...); s.Err != nil {
			return s
		}
	}
	if s.Session == "" {
		if s.Session, err = NewSession(ctx, peer, where); err != nil {
			return Started{Err: err}
		}
	}
	if model != "" {
		if _, err := peer.Call(ctx, acpformat.MethodModel, map[string]string{"sessionId": s.Session, "modelId": model}); err != nil {
			return Started{Err: fmt.Errorf("take the model %s: %w", model, err)}
		}
	}
	return s
}

// listen serves the runner until stdin ends or the agent does.
func (b *talk) listen(commands <-chan stdio.Command) int {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(c)
		case l := <-b.Lines:
			b.line(l)
		case s := <-b.Ready:
			if !b.begun(s) {
				return bridge.ExitFailed
			}
		case <-ticker.C:
			if !b.tick() {
				return bridge.ExitFailed
			}
		case <-b.Child.Done():
			b.out.Note(stdio.Note{Type: stdio.NoteDied, Message: "the agent has ended: " + b.Child.Ended()})
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

func (b *talk) block(block conversation.Block) {
	b.note(stdio.Note{Type: acpformat.NoteBlock, Data: acpformat.Encode(block)})
}

// system shows what the people of the session should know.
func (b *talk) system(subtype, message string) {
	at := now()
	b.block(conversation.Block{
		ID: fmt.Sprintf("%s/%s/%d", subtype, b.Turn.Run, at.UnixMilli()), Type: conversation.System, Status: conversation.Complete,
		CreatedAt: at, Subtype: subtype, Message: acpformat.Bounded(message),
	})
}

// begun takes up that the agent is ready, or not.
func (b *talk) begun(s Started) bool {
	if s.Err != nil {
		if b.Queued != nil {
			b.prompted(*b.Queued)
			b.failed(fmt.Sprintf("the agent does not start: %v", s.Err))
		} else {
			fmt.Fprintf(b.Stderr, "%s: the agent does not start: %v\n", acpformat.Command, s.Err)
		}
		return false
	}
	b.Session = s.Session
	b.note(stdio.Note{Type: noteSession, ID: s.Session})
	if !s.Loaded {
		if instructions := os.Getenv(acpformat.EnvInstructions); instructions != "" {
			b.preface = append(b.preface, "Instructions for this conversation:\n\n"+instructions)
		}
	}
	if s.Lost != nil {
		if past := b.journal.retold(); past != "" {
			b.preface = append(b.preface, "What was said in this conversation before, which you no longer remember:\n\n"+past)
			b.lost = s.Lost
		}
	}
	if s.Loaded {
		b.quietBy = time.Now().Add(quiet)
	}
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
		fmt.Fprintf(b.Stderr, "%s: no such command: %s\n", acpformat.Command, c.Type)
	}
}

// prompt begins a turn, as soon as that can be.
func (b *talk) prompt(c stdio.Command) {
	if b.Queue(c) {
		b.deliver()
	}
}

// deliver hands the prompt over that waits, once the agent is ready for it.
func (b *talk) deliver() {
	if b.Queued == nil || b.Session == "" || time.Now().Before(b.quietBy) {
		return
	}
	c := *b.Queued
	if b.known(c) {
		b.Queued = nil
		return
	}
	b.prompted(c)
	if b.lost != nil {
		b.system("memory_retold", fmt.Sprintf("The agent lost its history (%v); it was sent again.", b.lost))
		b.lost = nil
	}
	var texts []string
	for _, p := range b.preface {
		texts = append(texts, p+"\n\n")
	}
	b.preface = nil
	b.Prompt(append(texts, c.Content)...)
}

// known reports whether the run is known, and if so reports its outcome again: a run executes once.
func (b *talk) known(c stdio.Command) bool {
	if past, ok := b.journal.runs[c.RunID]; ok && (past.ended || past.answered) {
		end := past.end
		if !past.ended {
			end = acpformat.EndNote{At: now(), Outcome: session.OutcomeUnknown, Reason: reasonDelivered}
		}
		b.out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: c.RunID, Data: acpformat.Encode(end)})
		return true
	}
	return false
}

// prompted notes that a turn begins.
func (b *talk) prompted(c stdio.Command) {
	b.Begin(c.RunID)
	b.before = b.cost
	b.Recorder = acpformat.Recorder{Prefix: c.RunID}
	b.journal.runs[c.RunID] = &pastRun{}
	at := c.At
	if at.IsZero() {
		at = now()
	}
	b.note(stdio.Note{Type: stdio.NoteRun, RunID: c.RunID})
	b.block(conversation.Block{
		ID: c.RunID + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at,
		Content: c.Content, PromptID: c.PromptID, Author: c.Author,
	})
}

// interrupt breaks the turn off.
func (b *talk) interrupt(run string) {
	switch {
	case b.Queued != nil && b.Queued.RunID == run && b.known(*b.Queued):
		b.Queued = nil
	case b.Queued != nil && b.Queued.RunID == run:
		b.prompted(*b.Queued)
		b.end(session.OutcomeCancelled, session.ReasonAborted, session.Usage{})
	case b.Turn != nil && b.Turn.Run == run && !b.Turn.Interrupted:
		b.Turn.Interrupted, b.Interrupted = true, true
		b.cancel()
	}
}

// cancel asks the agent to abort the turn, and withdraws its questions. A cancel that arrives
// before the agent has accepted the prompt may be lost, so it is repeated until the turn ends.
func (b *talk) cancel() {
	for id := range b.Turn.Asked {
		b.reply(id, "")
	}
	b.Cancel()
}

// answer answers a question of the agent. An answer to a question that is no longer pending is
// dropped.
func (b *talk) answer(c stdio.Command) {
	var d acpformat.AnswerData
	if b.Turn == nil || b.Turn.Asked[c.ID] == nil || !acpformat.Decode(c.Data, &d) {
		return
	}
	b.reply(c.ID, d.Option)
	if d.Allowed {
		b.running(c.ID)
	}
}

// running notes that a call which has waited for permission has begun.
func (b *talk) running(call string) {
	if o := b.Find(call); o != nil && o.Block.Status == conversation.Pending {
		o.Block.Status = conversation.Running
		b.block(o.Block)
	}
}

// reply answers a request for permission; no option withdraws the question.
func (b *talk) reply(call, option string) {
	b.Turn.Heard = time.Now()
	b.note(stdio.Note{Type: acpformat.NoteAnswered, ID: call})
	b.Reply(call, option)
}

// line prints a line of the agent, after the blocks that it completes.
func (b *talk) line(l Said) {
	if b.Turn == nil || b.Session == "" {
		if time.Now().Before(b.quietBy) {
			b.quietBy = time.Now().Add(quiet) // it still repeats the past
		}
		b.out.Raw(l.Line)
		b.Refuse(l.Message)
		return
	}
	b.Turn.Heard = time.Now()
	switch {
	case l.Method == acpformat.MethodUpdate:
		var p acpformat.Params
		if acpformat.Decode(l.Params, &p) {
			if p.Update.Cost != nil {
				b.cost = p.Update.Cost.Amount
			}
			events, _ := b.Update(p.Update, now())
			b.tell(events)
		}
		b.out.Raw(l.Line)
	case l.Method == acpformat.MethodPermission && l.IsRequest():
		b.permission(l)
	case l.IsEnd():
		b.out.Raw(l.Line)
		b.finish(l.Message)
	default:
		b.out.Raw(l.Line)
		b.Refuse(l.Message)
	}
}

// tell notes the blocks that events are about, but for text, which streams by itself.
func (b *talk) tell(events []conversation.Event) {
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

// permission passes a question on, unless everything is allowed.
func (b *talk) permission(l Said) {
	var p acpformat.Params
	acpformat.Decode(l.Params, &p)
	id := p.ToolCall.ID
	if id != "" {
		b.tell(b.Call(p.ToolCall, true, now()))
	}
	if !b.allow && id != "" {
		b.Turn.Asked[id] = l.ID
		b.out.Raw(l.Line)
		return
	}
	if !b.allow { // it names no call, so no person can be asked about it
		b.Withdraw(l.ID)
		return
	}
	b.Permit(l.ID, p.Options)
	b.running(id)
}

// tick checks the deadlines. False means that the agent has not acted in time on the abort of its
// turn.
func (b *talk) tick() bool {
	b.deliver()
	if b.Turn == nil || b.Session == "" {
		return true
	}
	again, over := b.Turn.Look()
	switch {
	case over:
		b.finish(bridge.Message{})
		return false
	case again:
		b.cancel()
	case b.Turn.GaveUp != nil || len(b.Turn.Asked) > 0 || b.Turn.Interrupted || b.busy() || time.Since(b.Turn.Heard) <= b.silence:
	default:
		b.GiveUp(fmt.Errorf("the agent says nothing within %s", b.silence))
		b.cancel()
	}
	return true
}

// busy reports whether a tool is at work.
func (b *talk) busy() bool {
	return slices.ContainsFunc(b.Open, func(o *acpformat.OpenBlock) bool { return o.Block.Status == conversation.Running })
}

// finish ends the turn, as the answer to its prompt says.
func (b *talk) finish(m bridge.Message) {
	outcome, reason, failed := b.Turn.Ended(m)
	if failed {
		b.failed(reason)
		return
	}
	if outcome == session.OutcomeCompleted {
		b.tell(b.CloseText(now()))
	}
	b.end(outcome, reason, acpformat.Usage(m.Result))
}

// failed ends the turn with what went wrong.
func (b *talk) failed(message string) {
	b.tell(b.Cut(now()))
	b.system("error", message)
	b.end(session.OutcomeFailed, acpformat.Bounded(message), session.Usage{})
}

// end is the last line of a turn: the journal is whole before it is printed.
func (b *talk) end(outcome session.Outcome, reason string, used session.Usage) {
	b.tell(b.Cut(now()))
	used.ToolCalls, used.CostUSD = b.Calls, max(0, b.cost-b.before)
	end := acpformat.EndNote{At: now(), Outcome: outcome, Reason: reason, Usage: used.Bounded(), Model: b.model}
	past := b.journal.runs[b.Turn.Run]
	past.ended, past.end = true, end
	b.note(stdio.Note{Type: acpformat.NoteEnd, RunID: b.Turn.Run, Data: acpformat.Encode(end)})
	b.Turn = nil
}
