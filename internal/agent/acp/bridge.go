package acp

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/bridge"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// DefaultSilence is how long an agent may say nothing while no tool is at work and nobody has a
	// question to answer.
	DefaultSilence = 10 * time.Minute
	tickInterval   = 100 * time.Millisecond
	startTimeout   = 2 * time.Minute
	cancelInterval = 500 * time.Millisecond // between two times that the agent is told to break off
	quiet          = 300 * time.Millisecond // behind what an agent repeats when it has loaded a session
	stopGrace      = 2 * time.Second        // to end in order
	giveUpGrace    = 10 * time.Second       // to heed that a turn is given up
)

// reasonDelivered: the agent had begun with the prompt before it died. The protocol gives a prompt
// no id by which it could go on.
const reasonDelivered = "already_delivered"

// Main is the bridge between the runner and an agent. Its stdin has bridge.Command lines; the
// environment says what the agent is.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose journal it is")
	model := flags.String("model", "", "the model; empty leaves it to the agent")
	allow := flags.Bool("allow", false, "allow whatever the agent asks for")
	silence := flags.Duration("silence", bridge.Patience(DefaultSilence), "how long the agent may say nothing")
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !sessionID.MatchString(*id) || flags.NArg() > 0 || *silence <= 0 {
		fmt.Fprintln(stderr, Command+": a session and a positive silence are needed")
		return bridge.ExitUsage
	}
	argv, err := commandLine(os.Getenv(EnvCommand))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", Command, err)
		return bridge.ExitUsage
	}
	b := &talk{
		model: *model, allow: *allow, silence: *silence, out: bridge.NewOutput(stdout), stderr: stderr,
		done: make(chan struct{}), lines: make(chan said), ready: make(chan started),
	}
	code, err := b.main(journalPath(os.Getenv("HOME"), *id), argv, stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", Command, err)
	}
	return code
}

// commandLine is the agent's command: a JSON array of words, or a line for the shell.
func commandLine(line string) ([]string, error) {
	line = strings.TrimSpace(line)
	if line == "" {
		return nil, fmt.Errorf("there is no agent to start: set %s in the profile's environment or as a secret, such as %q", EnvCommand, "opencode acp")
	}
	if !strings.HasPrefix(line, "[") {
		return []string{"/bin/sh", "-c", "exec " + line}, nil
	}
	var argv []string
	if err := json.Unmarshal([]byte(line), &argv); err != nil || len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%s is no list of words", EnvCommand)
	}
	return argv, nil
}

// talk is the conversation with the agent. Everything but the reader of its stdout and the requests
// that wait runs in one goroutine.
type talk struct {
	model   string
	allow   bool
	silence time.Duration
	out     *bridge.Output
	stderr  io.Writer

	journal *journal
	child   *bridge.Child
	peer    *bridge.Peer
	tasks   sync.WaitGroup
	done    chan struct{} // closed when nobody listens any more
	lines   chan said     // taken one by one, so that what is printed is in order
	ready   chan started

	session string // the agent's own id of it; empty until it is ready
	quietBy time.Time
	queued  *bridge.Command // a prompt that waits for that
	preface []string        // what the next prompt is to be led in by
	lost    error           // why it has forgotten what was said before, until people are told
	cost    float64         // of the session, as the agent says

	recorder
	turn *turn
}

// said is a line of the agent.
type said struct {
	line []byte
	bridge.Message
}

// started is what has become of the agent's start.
type started struct {
	session string
	loaded  bool
	lost    error // why it could not load what was said before
	err     error
}

// turn is what is under way.
type turn struct {
	run         string
	heard       time.Time
	interrupted bool
	cancelled   time.Time // when the agent was last told to break off
	gaveUp      error
	giveUpBy    time.Time
	asked       map[string]json.RawMessage // ids of requests for permission, by call
	cost        float64                    // of the session before it
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func (b *talk) main(name string, argv []string, stdin io.Reader) (int, error) {
	var err error
	if b.journal, err = openJournal(name); err != nil {
		return bridge.ExitFailed, err
	}
	code := bridge.ExitFailed
	if err = b.start(argv); err == nil {
		b.out.Note(bridge.Note{Type: noteSession, ID: b.journal.session})
		code = b.listen(bridge.Commands(b.done, stdin, b.stderr))
		go drain(b.lines, b.done)
		b.child.Stop(stopGrace)
		close(b.done)
		b.tasks.Wait()
	}
	return code, errors.Join(err, b.out.Err(), b.journal.close())
}

// drain lets the reader go on until it ends.
func drain(lines <-chan said, done <-chan struct{}) {
	for {
		select {
		case <-lines:
		case <-done:
			return
		}
	}
}

func (b *talk) start(argv []string) error {
	workspace, err := os.Getwd()
	if err != nil {
		return err
	}
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name != EnvCommand && name != EnvTranscripts && name != envServers && name != envInstructions {
			env = append(env, e)
		}
	}
	mcp := json.RawMessage("[]")
	if s := os.Getenv(envServers); s != "" {
		mcp = json.RawMessage(s)
	}
	if b.child, err = bridge.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.stderr}); err != nil {
		return err
	}
	b.peer = bridge.NewPeer(b.child.Stdin)
	b.tasks.Go(func() {
		err := b.peer.Read(b.child.Stdout, func(line []byte, m bridge.Message) {
			select {
			case b.lines <- said{line, m}:
			case <-b.done:
			}
		})
		if err != nil {
			fmt.Fprintf(b.stderr, "%s: read from the agent: %v\n", Command, err)
		}
	})
	memory := b.journal.session
	b.tasks.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("the agent takes too long to start"))
		defer cancel()
		s := begin(ctx, b.peer, memory, b.model, map[string]any{"cwd": workspace, "mcpServers": mcp})
		select {
		case b.ready <- s:
		case <-b.done:
		}
	})
	return nil
}

// begin shakes hands and goes on with the session of memory, or begins a new one.
func begin(ctx context.Context, peer *bridge.Peer, memory, model string, where map[string]any) started {
	type object = map[string]any
	raw, err := peer.Call(ctx, MethodInitialize, object{
		"protocolVersion":    Version,
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         object{"name": "overwinter", "version": "1"},
	})
	if err != nil {
		return started{err: err}
	}
	var can struct {
		Version      int `json:"protocolVersion"`
		Capabilities struct {
			Load    bool `json:"loadSession"`
			Session struct {
				Resume json.RawMessage `json:"resume"`
			} `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
	}
	if Decode(raw, &can); can.Version != Version {
		return started{err: fmt.Errorf("the agent speaks version %d of the protocol, not %d", can.Version, Version)}
	}
	var s started
	if memory != "" {
		s = recall(ctx, peer, memory, can.Capabilities.Load, hasValue(can.Capabilities.Session.Resume), where)
		if s.err != nil {
			return s
		}
	}
	if s.session == "" {
		var made struct {
			SessionID string `json:"sessionId"`
		}
		raw, err := peer.Call(ctx, MethodNew, where)
		if err != nil {
			return started{err: err}
		}
		if Decode(raw, &made); made.SessionID == "" {
			return started{err: errors.New(MethodNew + ": the agent names no session")}
		}
		s.session = made.SessionID
	}
	if model != "" {
		if _, err := peer.Call(ctx, MethodModel, object{"sessionId": s.session, "modelId": model}); err != nil {
			return started{err: fmt.Errorf("take the model %s: %w", model, err)}
		}
	}
	return s
}

func hasValue(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "false"
}

// recall has the agent go on with a session, where it can.
func recall(ctx context.Context, peer *bridge.Peer, memory string, load, resume bool, where map[string]any) started {
	params := maps.Clone(where)
	params["sessionId"] = memory
	lost := errors.New("it cannot load sessions")
	for _, method := range []string{MethodResume, MethodLoad} {
		if method == MethodResume && !resume || method == MethodLoad && !load {
			continue
		}
		_, err := peer.Call(ctx, method, params)
		if err == nil {
			return started{session: memory, loaded: true}
		}
		if errors.Is(err, bridge.ErrGone) || ctx.Err() != nil {
			return started{err: err}
		}
		lost = err
	}
	return started{lost: lost}
}

// listen serves the runner until stdin ends or the agent does.
func (b *talk) listen(commands <-chan bridge.Command) int {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(c)
		case l := <-b.lines:
			b.line(l)
		case s := <-b.ready:
			if !b.begun(s) {
				return bridge.ExitFailed
			}
		case <-ticker.C:
			if !b.tick() {
				return bridge.ExitFailed
			}
		case <-b.child.Done():
			b.out.Note(bridge.Note{Type: bridge.NoteDied, Message: "the agent has ended: " + b.child.Ended()})
			return bridge.ExitDied
		}
		if b.out.Err() != nil {
			return bridge.ExitFailed
		}
	}
}

// note writes a line into the journal, and only then prints it.
func (b *talk) note(n bridge.Note) {
	b.journal.out.Note(n)
	b.out.Note(n)
}

func (b *talk) block(block conversation.Block) {
	b.note(bridge.Note{Type: noteBlock, Data: encode(block)})
}

// system shows what the people of the session should know.
func (b *talk) system(subtype, message string) {
	at := now()
	b.block(conversation.Block{
		ID: fmt.Sprintf("%s/%s/%d", subtype, b.turn.run, at.UnixMilli()), Type: conversation.System, Status: conversation.Complete,
		CreatedAt: at, Subtype: subtype, Message: bounded(message),
	})
}

// begun takes up that the agent is ready, or not.
func (b *talk) begun(s started) bool {
	if s.err != nil {
		if b.queued != nil {
			b.prompted(*b.queued)
			b.failed(fmt.Sprintf("the agent does not start: %v", s.err))
		} else {
			fmt.Fprintf(b.stderr, "%s: the agent does not start: %v\n", Command, s.err)
		}
		return false
	}
	b.session = s.session
	b.note(bridge.Note{Type: noteSession, ID: s.session})
	if !s.loaded {
		if instructions := os.Getenv(envInstructions); instructions != "" {
			b.preface = append(b.preface, "Instructions for this conversation:\n\n"+instructions)
		}
	}
	if s.lost != nil {
		if past := b.journal.retold(); past != "" {
			b.preface = append(b.preface, "What was said in this conversation before, which you no longer remember:\n\n"+past)
			b.lost = s.lost
		}
	}
	if s.loaded {
		b.quietBy = time.Now().Add(quiet)
	}
	b.deliver()
	return true
}

// command does what the runner wants.
func (b *talk) command(c bridge.Command) {
	switch c.Type {
	case bridge.Prompt:
		b.prompt(c)
	case bridge.Interrupt:
		b.interrupt(c.RunID)
	case bridge.Answer:
		b.answer(c)
	default:
		fmt.Fprintf(b.stderr, "%s: no such command: %s\n", Command, c.Type)
	}
}

// prompt begins a turn, as soon as that can be.
func (b *talk) prompt(c bridge.Command) {
	if b.turn != nil || b.queued != nil {
		fmt.Fprintf(b.stderr, "%s: the prompt of run %s comes while another is at work\n", Command, c.RunID)
		return
	}
	b.queued = &c
	b.deliver()
}

// deliver hands the prompt over that waits, once the agent is ready for it.
func (b *talk) deliver() {
	if b.queued == nil || b.session == "" || time.Now().Before(b.quietBy) {
		return
	}
	c := *b.queued
	if b.known(c) {
		b.queued = nil
		return
	}
	b.prompted(c)
	if b.lost != nil {
		b.system("memory_retold", fmt.Sprintf("The agent has forgotten what was said before (%v) and has been told again.", b.lost))
		b.lost = nil
	}
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var parts []text
	for _, p := range b.preface {
		parts = append(parts, text{"text", p + "\n\n"})
	}
	b.preface = nil
	params := map[string]any{"sessionId": b.session, "prompt": append(parts, text{"text", c.Content})}
	b.tasks.Go(func() {
		// The answer is read where all lines are.
		_, _ = b.peer.Call(context.Background(), MethodPrompt, params)
	})
}

// known reports whether the run is known, and says what has become of it: it is done once.
func (b *talk) known(c bridge.Command) bool {
	if past, ok := b.journal.runs[c.RunID]; ok && (past.ended || past.answered) {
		end := past.end
		if !past.ended {
			end = endNote{At: now(), Outcome: session.OutcomeUnknown, Reason: reasonDelivered}
		}
		b.out.Note(bridge.Note{Type: bridge.NoteKnown, RunID: c.RunID, Data: encode(end)})
		return true
	}
	return false
}

// prompted notes that a turn begins.
func (b *talk) prompted(c bridge.Command) {
	b.queued = nil
	b.turn = &turn{run: c.RunID, heard: time.Now(), asked: map[string]json.RawMessage{}, cost: b.cost}
	b.recorder = recorder{Prefix: c.RunID}
	b.journal.runs[c.RunID] = &pastRun{}
	at := c.At
	if at.IsZero() {
		at = now()
	}
	b.note(bridge.Note{Type: bridge.NoteRun, RunID: c.RunID})
	b.block(conversation.Block{
		ID: c.RunID + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at,
		Content: c.Content, PromptID: c.PromptID, Author: c.Author,
	})
}

// interrupt breaks the turn off.
func (b *talk) interrupt(run string) {
	switch {
	case b.queued != nil && b.queued.RunID == run && b.known(*b.queued):
		b.queued = nil
	case b.queued != nil && b.queued.RunID == run:
		b.prompted(*b.queued)
		b.end(session.OutcomeCancelled, session.ReasonAborted, session.Usage{})
	case b.turn != nil && b.turn.run == run && !b.turn.interrupted:
		b.turn.interrupted, b.Interrupted = true, true
		b.cancel()
	}
}

// cancel tells the agent to break off, and to ask no longer. One that comes before it has taken the
// prompt up may be lost, so it is told until it has ended the turn.
func (b *talk) cancel() {
	b.turn.cancelled = time.Now()
	for id := range b.turn.asked {
		b.reply(id, "")
	}
	if err := b.peer.Notify(MethodCancel, map[string]string{"sessionId": b.session}); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
}

// answer answers a question of the agent's. One that nobody asks any longer is left out.
func (b *talk) answer(c bridge.Command) {
	var d AnswerData
	if b.turn == nil || b.turn.asked[c.ID] == nil || !Decode(c.Data, &d) {
		return
	}
	b.reply(c.ID, d.Option)
	if d.Allowed {
		b.running(c.ID)
	}
}

// running notes that a call which has waited for permission has begun.
func (b *talk) running(call string) {
	if o := b.find(call); o != nil && o.Block.Status == conversation.Pending {
		o.Block.Status = conversation.Running
		b.block(o.Block)
	}
}

// reply answers a request for permission; no option withdraws the question.
func (b *talk) reply(call, option string) {
	id := b.turn.asked[call]
	delete(b.turn.asked, call)
	b.turn.heard = time.Now()
	b.note(bridge.Note{Type: noteAnswered, ID: call})
	if err := b.peer.Reply(id, Outcome(option)); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
}

// line prints a line of the agent, behind the blocks that it completes.
func (b *talk) line(l said) {
	if b.turn == nil || b.session == "" {
		if time.Now().Before(b.quietBy) {
			b.quietBy = time.Now().Add(quiet) // it still tells of the past
		}
		b.out.Raw(l.line)
		b.refuse(l.Message)
		return
	}
	b.turn.heard = time.Now()
	switch {
	case l.Method == MethodUpdate:
		var p params
		if Decode(l.Params, &p) {
			if p.Update.Cost != nil {
				b.cost = p.Update.Cost.Amount
			}
			events, _ := b.update(p.Update, now())
			b.tell(events)
		}
		b.out.Raw(l.line)
	case l.Method == MethodPermission && l.IsRequest():
		b.permission(l)
	case l.IsResponse() && strings.HasPrefix(string(l.ID), `"`+MethodPrompt+"#"):
		b.out.Raw(l.line)
		b.finish(l.Message)
	default:
		b.out.Raw(l.line)
		b.refuse(l.Message)
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
			if o := b.find(d.BlockID); o != nil {
				b.block(o.Block)
			}
		case conversation.BlockComplete:
			b.block(d.Block)
		}
	}
}

// permission passes a question on, unless everything is allowed.
func (b *talk) permission(l said) {
	var p params
	Decode(l.Params, &p)
	id := p.ToolCall.ID
	if id != "" {
		b.tell(b.call(p.ToolCall, true, now()))
	}
	if !b.allow && id != "" {
		b.turn.asked[id] = l.ID
		b.out.Raw(l.line)
		return
	}
	if err := b.peer.Reply(l.ID, Outcome(Allow(options(p.Options)))); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
	b.running(id)
}

// refuse answers requests that this bridge has not said that it takes.
func (b *talk) refuse(m bridge.Message) {
	if !m.IsRequest() {
		return
	}
	if err := b.peer.Refuse(m.ID, bridge.CodeMethodNotFound, "there is no method "+m.Method); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
}

// tick looks at the clock. False means that the agent does not heed that the turn is given up.
func (b *talk) tick() bool {
	b.deliver()
	if t := b.turn; t != nil && (t.interrupted || t.gaveUp != nil) && time.Since(t.cancelled) > cancelInterval {
		b.cancel()
	}
	switch {
	case b.turn == nil || b.session == "":
	case b.turn.gaveUp != nil:
		if time.Now().After(b.turn.giveUpBy) {
			b.finish(bridge.Message{})
			return false
		}
	case len(b.turn.asked) > 0 || b.turn.interrupted || b.busy() || time.Since(b.turn.heard) <= b.silence:
	default:
		b.turn.gaveUp = fmt.Errorf("the agent says nothing within %s", b.silence)
		b.turn.giveUpBy = time.Now().Add(giveUpGrace)
		b.cancel()
	}
	return true
}

// busy reports whether a tool is at work.
func (b *talk) busy() bool {
	return slices.ContainsFunc(b.Open, func(o *openBlock) bool { return o.Block.Status == conversation.Running })
}

// finish ends the turn, as the answer to its prompt says.
func (b *talk) finish(m bridge.Message) {
	var result struct {
		StopReason string `json:"stopReason"`
	}
	Decode(m.Result, &result)
	outcome, reason := Stopped(result.StopReason)
	switch {
	case b.turn.gaveUp != nil:
		b.failed(b.turn.gaveUp.Error())
		return
	case b.turn.interrupted:
		outcome, reason = session.OutcomeCancelled, session.ReasonAborted
	case m.Error != nil:
		b.failed(m.Error.Message)
		return
	}
	if outcome == session.OutcomeCompleted {
		b.tell(b.closeText(now()))
	}
	b.end(outcome, reason, usage(m.Result))
}

// failed ends the turn with what went wrong.
func (b *talk) failed(message string) {
	b.tell(b.cut(now()))
	b.system("error", message)
	b.end(session.OutcomeFailed, bounded(message), session.Usage{})
}

// end is the last line of a turn: the journal is whole before it is printed.
func (b *talk) end(outcome session.Outcome, reason string, used session.Usage) {
	b.tell(b.cut(now()))
	used.ToolCalls, used.CostUSD = b.Calls, max(0, b.cost-b.turn.cost)
	end := endNote{At: now(), Outcome: outcome, Reason: reason, Usage: used, Model: b.model}
	past := b.journal.runs[b.turn.run]
	past.ended, past.end = true, end
	b.note(bridge.Note{Type: noteEnd, RunID: b.turn.run, Data: encode(end)})
	b.turn = nil
}
