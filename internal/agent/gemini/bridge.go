package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// DefaultSilence is how long the program may say nothing while it waits for the model. It tries
	// again without a word, and without an end that anybody has seen.
	DefaultSilence = 5 * time.Minute
	// delegated is how many times longer a subagent may take between two things that it writes down.
	delegated = 6
	// pollInterval is how often chat files are looked at, beside every time that the program speaks.
	pollInterval = 50 * time.Millisecond
	startTimeout = 2 * time.Minute
	// cancelInterval is how often the program is told to break off.
	cancelInterval = 500 * time.Millisecond
	pastTimeout    = 3 * time.Second  // for what the program repeats when it has loaded a session
	stopGrace      = 2 * time.Second  // to end in order
	giveUpGrace    = 10 * time.Second // to heed that a turn is given up
)

// errSilent is why a turn is given up.
var errSilent = errors.New("the model gives no answer")

// Main is the bridge between the runner and the program, whose argv stands behind the flags. Its
// stdin has bridge.Command lines, its environment is the program's.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.String("session", "", "the session, whose journal it is")
	allow := flags.Bool("allow", false, "allow whatever the program asks for")
	silence := flags.Duration("silence", bridge.Patience(DefaultSilence), "how long the model may give no answer")
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	if !sessionID.MatchString(*id) || flags.NArg() == 0 || *silence <= 0 {
		fmt.Fprintln(stderr, Command+": a session, a positive silence and the program are needed")
		return bridge.ExitUsage
	}
	b := &talk{
		allow: *allow, silence: *silence, out: bridge.NewOutput(stdout), stderr: stderr, home: os.Getenv("HOME"),
		done: make(chan struct{}), frames: make(chan said), ready: make(chan started),
	}
	code, err := b.main(*id, flags.Args(), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", Command, err)
	}
	return code
}

// talk is the conversation with the program. Everything but the reader of its stdout and the
// requests that wait runs in one goroutine.
type talk struct {
	allow     bool
	silence   time.Duration
	out       *bridge.Output
	stderr    io.Writer
	home      string
	workspace string

	journal *journal
	child   *bridge.Child
	peer    *bridge.Peer
	tasks   sync.WaitGroup
	done    chan struct{} // closed when nobody listens any more
	frames  chan said     // taken one by one, so that what is printed is in order
	ready   chan started

	session string // the program's own id of it; empty until it is ready
	past    int    // updates that are still to come of what it has loaded
	pastBy  time.Time
	queued  *bridge.Command // a prompt that waits for that

	order
	turn *turn
}

// said is a line of the program.
type said struct {
	line []byte
	bridge.Message
}

// started is what has become of the program's start.
type started struct {
	session string
	version string
	loaded  bool
	lost    error // why its memory could not be loaded
	err     error
}

// turn is what is under way.
type turn struct {
	run         string
	heard       time.Time // when the program last did something
	interrupted bool
	cancelled   time.Time // when the program was last told to break off
	gaveUp      error
	giveUpBy    time.Time
	asked       map[string]json.RawMessage // ids of requests for permission, by call
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (b *talk) main(id string, argv []string, stdin io.Reader) (int, error) {
	workspace, err := os.Getwd()
	if err != nil {
		return bridge.ExitFailed, err
	}
	b.workspace = workspace
	if b.journal, err = openJournal(journalPath(b.home, id)); err != nil {
		return bridge.ExitFailed, err
	}
	code, err := b.start(argv)
	if err == nil {
		b.out.Note(bridge.Note{Type: noteSession, ID: b.journal.session})
		commands := bridge.Commands(b.done, stdin, b.stderr)
		code = b.listen(commands)
		if b.child != nil {
			go drain(b.frames, b.done)
			b.child.Stop(stopGrace)
		}
		close(b.done)
		b.tasks.Wait()
	}
	return code, errors.Join(err, b.out.Err(), b.journal.close())
}

// drain lets the reader go on until it ends.
func drain(frames <-chan said, done <-chan struct{}) {
	for {
		select {
		case <-frames:
		case <-done:
			return
		}
	}
}

// start starts the program with nothing but the memory of the journal.
func (b *talk) start(argv []string) (int, error) {
	dir := filepath.Join(b.home, ".gemini")
	restored, err := b.journal.memory.restore(dir, b.workspace, b.journal.session)
	if err != nil {
		return bridge.ExitFailed, err
	}
	env, err := environment(dir)
	if err != nil {
		return bridge.ExitFailed, err
	}
	if b.child, err = bridge.Start(bridge.Spec{Argv: argv, Env: env, Stderr: b.stderr}); err != nil {
		return bridge.ExitFailed, err
	}
	b.peer = bridge.NewPeer(b.child.Stdin)
	b.order = order{news: newNews(), finished: map[string]struct{}{}, open: map[string]bool{}}
	if restored != "" {
		b.past = b.journal.memory.frames()
		b.news.remembers(b.journal.memory)
		if info, err := os.Stat(restored); err == nil {
			b.chats = &tail{name: restored, offset: info.Size()}
		}
	}
	b.tasks.Go(func() {
		err := b.peer.Read(b.child.Stdout, func(line []byte, m bridge.Message) {
			select {
			case b.frames <- said{line, m}:
			case <-b.done:
			}
		})
		if err != nil {
			fmt.Fprintf(b.stderr, "%s: read from the program: %v\n", Command, err)
		}
	})
	memory := b.journal.session
	b.tasks.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("the program takes too long to start"))
		defer cancel()
		s := b.begin(ctx, memory)
		select {
		case b.ready <- s:
		case <-b.done:
		}
	})
	return bridge.ExitDone, nil
}

// begin shakes hands and goes on with the session of memory, or begins a new one.
func (b *talk) begin(ctx context.Context, memory string) started {
	type object = map[string]any
	var hello struct {
		Info struct {
			Version string `json:"version"`
		} `json:"agentInfo"`
	}
	raw, err := b.peer.Call(ctx, acp.MethodInitialize, object{
		"protocolVersion":    acp.Version,
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         object{"name": "overwinter", "version": "1"},
	})
	if err != nil {
		return started{err: err}
	}
	decode(raw, &hello)
	s := started{version: hello.Info.Version}
	where := object{"cwd": b.workspace, "mcpServers": []any{}}
	if memory != "" {
		_, err := b.peer.Call(ctx, acp.MethodLoad, object{"sessionId": memory, "cwd": b.workspace, "mcpServers": []any{}})
		if err == nil {
			s.session, s.loaded = memory, true
			return s
		}
		if errors.Is(err, bridge.ErrGone) || ctx.Err() != nil {
			return started{err: err}
		}
		s.lost = err
	}
	raw, err = b.peer.Call(ctx, acp.MethodNew, where)
	if err != nil {
		return started{err: err, lost: s.lost}
	}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if decode(raw, &made); made.SessionID == "" {
		return started{err: errors.New("session/new: the program names no session")}
	}
	s.session = made.SessionID
	return s
}

// listen serves the runner until stdin ends or the program does.
func (b *talk) listen(commands <-chan bridge.Command) int {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(c)
		case f := <-b.frames:
			b.frame(f)
		case s := <-b.ready:
			if !b.begun(s) {
				return bridge.ExitFailed
			}
		case <-ticker.C:
			if !b.tick() {
				return bridge.ExitFailed
			}
		case <-b.child.Done():
			b.died()
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

// begun takes up that the program is ready, or not.
func (b *talk) begun(s started) bool {
	if s.err != nil {
		if b.queued != nil {
			b.prompted(*b.queued)
			b.failed(fmt.Sprintf("the program does not start: %v", s.err))
		}
		return false
	}
	b.session = s.session
	if !s.loaded {
		b.past = 0
		b.chats = nil
		b.news = newNews()
	}
	if s.session != b.journal.session || s.loaded {
		b.note(bridge.Note{Type: noteSession, ID: s.session, Data: data(sessionNote{At: now(), Version: s.version, Loaded: s.loaded})})
	}
	if s.lost != nil {
		b.note(bridge.Note{Type: noteLost, Message: fmt.Sprintf("The agent could not load what was said before, and begins anew: %v", s.lost), Data: data(stamp{At: now()})})
	}
	b.pastBy = time.Now().Add(pastTimeout)
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

// reasonDelivered: the agent had begun with the prompt before it died. It keeps no id of it by
// which it could go on.
const reasonDelivered = "already_delivered"

// deliver hands the prompt over that waits, once the program is ready for it.
func (b *talk) deliver() {
	if b.queued == nil || b.session == "" || (b.past > 0 && time.Now().Before(b.pastBy)) {
		return
	}
	c := *b.queued
	if b.known(c) {
		b.queued = nil
		return
	}
	b.prompted(c)
	text := b.expand(c.Content)
	b.tasks.Go(func() {
		// The answer is read where all lines are.
		_, _ = b.peer.Call(context.Background(), acp.MethodPrompt, map[string]any{
			"sessionId": b.session, "prompt": []map[string]string{{"type": "text", "text": text}},
		})
	})
}

// known reports whether the run is known, and says what has become of it: it is done once.
func (b *talk) known(c bridge.Command) bool {
	if past, ok := b.journal.runs[c.RunID]; ok && (past.ended || past.answered) {
		end := endNote{At: now(), Outcome: past.outcome, Reason: past.reason}
		if !past.ended {
			end.Outcome, end.Reason = session.OutcomeUnknown, reasonDelivered
		}
		b.out.Note(bridge.Note{Type: bridge.NoteKnown, RunID: c.RunID, Data: data(end)})
		return true
	}
	return false
}

// prompted notes that a turn begins.
func (b *talk) prompted(c bridge.Command) {
	b.queued = nil
	b.turn = &turn{run: c.RunID, heard: time.Now(), asked: map[string]json.RawMessage{}}
	b.journal.runs[c.RunID] = &pastRun{}
	b.order.begin()
	at := c.At
	if at.IsZero() {
		at = now()
	}
	b.note(bridge.Note{Type: notePrompt, RunID: c.RunID, Data: data(promptNote{
		At: at, PromptID: c.PromptID, Author: c.Author, Content: c.Content,
	})})
}

// interrupt breaks the turn off.
func (b *talk) interrupt(run string) {
	switch {
	case b.queued != nil && b.queued.RunID == run && b.known(*b.queued):
		b.queued = nil
	case b.queued != nil && b.queued.RunID == run:
		b.prompted(*b.queued)
		b.note(bridge.Note{Type: noteInterrupt, RunID: run})
		b.end(session.OutcomeCancelled, session.ReasonAborted)
	case b.turn != nil && b.turn.run == run && !b.turn.interrupted:
		b.turn.interrupted = true
		b.note(bridge.Note{Type: noteInterrupt, RunID: run})
		b.cancel()
	}
}

// cancel tells the program to break off, and to ask no longer. It does not heed one that comes before
// it has taken the prompt up, so it is told until it does.
func (b *talk) cancel() {
	b.turn.cancelled = time.Now()
	for id := range b.turn.asked {
		b.reply(id, "")
		b.note(bridge.Note{Type: noteAnswered, ID: id, Data: data(false)})
	}
	if err := b.peer.Notify(acp.MethodCancel, map[string]string{"sessionId": b.session}); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
}

// answer answers a question of the program's. One that nobody asks any longer is left out.
func (b *talk) answer(c bridge.Command) {
	var d acp.AnswerData
	if b.turn == nil || b.turn.asked[c.ID] == nil || !decode(c.Data, &d) {
		return
	}
	b.turn.heard = time.Now()
	b.note(bridge.Note{Type: noteAnswered, ID: c.ID, Data: data(d.Allowed)})
	if !d.Allowed {
		delete(b.open, c.ID) // nothing more is said of it
	}
	b.reply(c.ID, d.Option)
}

// reply answers a request for permission; no option withdraws the question.
func (b *talk) reply(call, option string) {
	id := b.turn.asked[call]
	delete(b.turn.asked, call)
	if err := b.peer.Reply(id, acp.Outcome(option)); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
}

// frame prints a line of the program, between what its chat file has before and behind it.
func (b *talk) frame(f said) {
	if b.session == "" || b.turn == nil {
		b.out.Raw(f.line)
		b.repeated(f.Message)
		b.refuse(f.Message)
		return
	}
	b.turn.heard = time.Now()
	b.poll()
	var p updateParams
	switch {
	case f.Method == acp.MethodUpdate && decode(f.Params, &p):
		b.emit(b.before(p.Update))
		b.tool(p.Update.call, p.Update.Kind, false)
		b.out.Raw(f.line)
		b.emit(b.behind(p.Update))
	case f.Method == acp.MethodPermission && f.IsRequest():
		b.permission(f)
	case f.IsResponse() && strings.HasPrefix(string(f.ID), `"`+acp.MethodPrompt+"#"):
		b.out.Raw(f.line)
		b.finish(f.Message)
	default:
		b.out.Raw(f.line)
		b.refuse(f.Message)
	}
}

// permission passes a question on. Where everything is allowed it is answered here: a program that has
// loaded a session asks in spite of its mode.
func (b *talk) permission(f said) {
	var p struct {
		Options  []acp.Option `json:"options"`
		ToolCall call         `json:"toolCall"`
	}
	decode(f.Params, &p)
	b.emit(b.answers())
	b.tool(p.ToolCall, "tool_call", !b.allow)
	if !b.allow && p.ToolCall.ID != "" {
		b.turn.asked[p.ToolCall.ID] = f.ID
		b.out.Raw(f.line)
		return
	}
	choice := ""
	if b.allow {
		choice = acp.Allow(p.Options)
	} // else it names no call, so that nobody can be asked about it
	if err := b.peer.Reply(f.ID, acp.Outcome(choice)); err != nil {
		fmt.Fprintf(b.stderr, "%s: %v\n", Command, err)
	}
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

// repeated counts what the program says of the past that it has loaded.
func (b *talk) repeated(m bridge.Message) {
	var p updateParams
	if b.past == 0 || m.Method != acp.MethodUpdate || !decode(m.Params, &p) {
		return
	}
	switch p.Update.Kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call":
		b.past--
		b.deliver()
	}
}

// tool notes that a call has begun, where the program says so for the first time.
func (b *talk) tool(c call, kind string, asked bool) {
	if kind != "tool_call" && kind != "tool_call_update" || c.ID == "" {
		return
	}
	if c.Status == "completed" || c.Status == "failed" {
		delete(b.open, c.ID)
	} else if _, ok := b.open[c.ID]; !ok {
		name := toolName(c.ID)
		b.open[c.ID] = name == subagentTool
		if name == subagentTool {
			b.delegate = c.ID
		}
		b.note(bridge.Note{Type: noteTool, ID: c.ID, Data: data(toolNote{At: now(), Name: name, Title: c.Title, Asked: asked})})
	}
}

func (b *talk) emit(notes []bridge.Note) {
	for _, n := range notes {
		b.note(n)
	}
}

// poll reads what the chat files have gained.
func (b *talk) poll() {
	if b.chats == nil && b.session != "" {
		if name := chatOf(filepath.Join(b.home, ".gemini"), b.session); name != "" {
			b.chats = &tail{name: name}
		}
	}
	notes, heard := b.gained(filepath.Join(b.home, ".gemini", "tmp", slug, "chats", b.session))
	if heard && b.turn != nil {
		b.turn.heard = time.Now()
	}
	b.emit(notes)
}

// tick looks at the chat files and at the clock. False means that the program does not heed that
// the turn is given up.
func (b *talk) tick() bool {
	b.deliver()
	if b.turn == nil || b.session == "" {
		return true
	}
	b.poll()
	if (b.turn.interrupted || b.turn.gaveUp != nil) && time.Since(b.turn.cancelled) > cancelInterval {
		b.cancel()
	}
	if b.turn.gaveUp != nil {
		if time.Now().Before(b.turn.giveUpBy) {
			return true
		}
		b.finish(bridge.Message{})
		return false
	}
	limit := b.silence
	for _, subagent := range b.open {
		if !subagent {
			return true // a tool takes as long as it takes
		}
		limit = delegated * b.silence
	}
	if len(b.turn.asked) == 0 && !b.turn.interrupted && time.Since(b.turn.heard) > limit {
		b.turn.gaveUp = fmt.Errorf("%w within %s", errSilent, limit)
		b.turn.giveUpBy = time.Now().Add(giveUpGrace)
		b.note(bridge.Note{Type: bridge.NoteDeadline, RunID: b.turn.run, Message: b.turn.gaveUp.Error(), Data: data(stamp{At: now()})})
		b.cancel()
	}
	return true
}

// finish ends the turn, as the answer to its prompt says.
func (b *talk) finish(m bridge.Message) {
	b.poll()
	b.emit(b.rest())
	var result struct {
		StopReason string `json:"stopReason"`
	}
	decode(m.Result, &result)
	outcome, reason := acp.Stopped(result.StopReason)
	switch {
	case b.turn.gaveUp != nil:
		outcome, reason = session.OutcomeFailed, b.turn.gaveUp.Error()
	case b.turn.interrupted:
		outcome, reason = session.OutcomeCancelled, session.ReasonAborted
	case m.Error != nil:
		b.failed(m.Error.Message)
		return
	}
	b.partial(outcome == session.OutcomeCompleted)
	b.end(outcome, reason)
}

// failed ends the turn with what went wrong.
func (b *talk) failed(message string) {
	b.partial(false)
	b.note(bridge.Note{Type: bridge.NoteFailed, RunID: b.turn.run, Message: message, Data: data(stamp{At: now()})})
	b.end(session.OutcomeFailed, bounded(message))
}

// partial notes what the agent has said without writing it down.
func (b *talk) partial(whole bool) {
	text, thoughts := b.unwritten()
	if text == "" && len(thoughts) == 0 {
		return
	}
	b.note(bridge.Note{Type: notePartial, Data: data(partialNote{At: now(), Text: text, Thoughts: thoughts, Complete: whole})})
}

// end is the last line of a turn: the journal is whole before it is printed.
func (b *talk) end(outcome session.Outcome, reason string) {
	end := endNote{At: now(), Outcome: outcome, Reason: reason}
	past := b.journal.runs[b.turn.run]
	past.ended, past.outcome, past.reason = true, outcome, reason
	b.note(bridge.Note{Type: noteEnd, RunID: b.turn.run, Data: data(end)})
	b.turn = nil
}

// died says that the program has ended by itself.
func (b *talk) died() {
	b.out.Note(bridge.Note{Type: bridge.NoteDied, Message: "the program has ended: " + b.child.Ended()})
}
