package acpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Now returns the current time with the precision of notebooks.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Run starts the agent with start, which calls [Bridge.Start], and serves the prompts of stdin
// until stdin is closed or the agent exits. It returns the exit code, and closes the notebook.
func (b *Bridge) Run(a Agent, notebook *Notebook, start func() error, stdin io.Reader) (int, error) {
	b.agent, b.Notebook = a, notebook
	code, err := bridge.ExitFailed, start()
	if err == nil {
		b.Out.Note(stdio.Note{Type: stdio.NoteSession, ID: notebook.Session})
		code = b.listen(bridge.Commands(b.done, stdin, b.Stderr))
		b.stop()
	}
	return code, errors.Join(err, b.Out.Err(), notebook.Close())
}

// listen serves the runner until stdin is closed or the agent exits.
func (b *Bridge) listen(commands <-chan stdio.Command) int {
	ticker := time.NewTicker(b.Interval)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(c)
		case s := <-b.lines:
			b.line(s)
		case s := <-b.started:
			if !b.ready(s) {
				return bridge.ExitFailed
			}
		case <-ticker.C:
			if !b.tick() {
				return bridge.ExitFailed
			}
		case <-b.child.Done():
			b.Out.Note(stdio.Note{Type: stdio.NoteDied, Message: fmt.Sprintf("the %s has ended: %s", b.Noun, b.child.Ended())})
			return bridge.ExitDied
		}
		if b.Out.Err() != nil {
			return bridge.ExitFailed
		}
	}
}

// ready handles the outcome of the start. It returns false if the start failed.
func (b *Bridge) ready(s Started) bool {
	if s.Err != nil {
		why := fmt.Sprintf("the %s does not start: %v", b.Noun, s.Err)
		if b.queued != nil {
			b.begin(*b.queued)
			if rpcErr, ok := errors.AsType[*bridge.RPCError](s.Err); ok {
				b.Turn.Refused = refused(rpcErr)
			}
			b.agent.Failed(why)
		} else {
			b.log(errors.New(why))
		}
		return false
	}
	b.Session, b.images = s.Session, s.Images
	b.agent.Ready(s)
	b.deliver()
	return true
}

// command executes a command of the runner.
func (b *Bridge) command(c stdio.Command) {
	switch c.Type {
	case stdio.Prompt:
		if b.Turn != nil || b.queued != nil {
			b.log(fmt.Errorf("the prompt of run %s arrives while another is in progress", c.RunID))
			return
		}
		b.queued = &c
		b.deliver()
	case stdio.Interrupt:
		b.interrupt(c.RunID)
	case stdio.Answer:
		b.answer(c)
	default:
		fmt.Fprintf(b.Stderr, "%s: no such command: %s\n", b.Name, c.Type)
	}
}

// deliver sends the waiting prompt to the agent, once the agent is ready for it.
func (b *Bridge) deliver() {
	if b.queued == nil || b.Session == "" || b.agent.Repeating() {
		return
	}
	c := *b.queued
	if b.known(c.RunID) {
		b.queued = nil
		return
	}
	b.begin(c)
	var images []bridge.Image
	if b.images {
		images = bridge.ReadImages(c.Images)
	}
	texts := b.agent.Texts(c.Content)
	switch {
	case c.Reminder == "":
	case strings.HasPrefix(c.Content, "/"): // agents look for a command in the first text
		texts = append(texts, c.Reminder)
	default:
		texts = append([]string{c.Reminder}, texts...)
	}
	b.send(texts, images)
}

// known reports whether the notebook contains the run. If it does, known prints the end of the run
// again, because a run is executed only once.
func (b *Bridge) known(run string) bool {
	end, ok := b.agent.Known(run)
	if ok {
		b.Out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: run, Data: end})
	}
	return ok
}

// begin begins the turn of a prompt.
func (b *Bridge) begin(c stdio.Command) {
	b.queued = nil
	b.Turn = &Turn{Run: c.RunID, LastLine: time.Now(), Asked: map[string]json.RawMessage{}}
	if c.At.IsZero() {
		c.At = Now()
	}
	b.agent.Begun(c)
}

// Note writes a line to the notebook, and then prints it.
func (b *Bridge) Note(n stdio.Note) {
	b.Notebook.Note(n)
	b.Out.Note(n)
}

// End ends the turn with a note. The note is the last line of a turn, so the notebook is complete
// before the end is printed.
func (b *Bridge) End(data json.RawMessage) {
	b.Note(stdio.Note{Type: acpformat.NoteEnd, RunID: b.Turn.Run, Data: data})
	b.Turn = nil
}

// interrupt aborts the turn of a run. A prompt that was not sent to the agent ends at once.
func (b *Bridge) interrupt(run string) {
	switch {
	case b.queued != nil && b.queued.RunID == run:
		if b.known(run) {
			b.queued = nil
			return
		}
		b.begin(*b.queued)
		b.agent.Interrupted()
		b.agent.Ended(session.OutcomeCancelled, session.ReasonAborted)
	case b.Turn != nil && b.Turn.Run == run && !b.Turn.Interrupted:
		b.Turn.Interrupted = true
		b.agent.Interrupted()
		b.cancel()
	}
}

// answer answers a question of the agent. An answer to a question that is no longer pending is
// dropped.
func (b *Bridge) answer(c stdio.Command) {
	var d acpformat.AnswerData
	if b.Turn == nil || b.Turn.Asked[c.ID] == nil || !acpformat.Decode(c.Data, &d) {
		return
	}
	decision := Rejected
	if d.Allowed {
		decision = Allowed
	}
	b.reply(c.ID, d.Option, decision)
}

// line handles and prints a line of the agent.
func (b *Bridge) line(s Said) {
	if b.Turn == nil || b.Session == "" {
		b.Out.Raw(s.Line)
		b.agent.Repeated(s)
		b.Refuse(s.Message)
		b.deliver()
		return
	}
	b.Turn.LastLine = time.Now()
	b.agent.Poll()
	switch {
	case s.Method == acpformat.MethodUpdate:
		b.agent.Updated(s)
	case s.Method == acpformat.MethodPermission && s.IsRequest():
		b.permission(s)
	case s.isEnd():
		b.Out.Raw(s.Line)
		b.agent.Finished(s.Message)
	default:
		b.Out.Raw(s.Line)
		b.Refuse(s.Message)
	}
}

// permission forwards a question, unless everything is allowed.
func (b *Bridge) permission(s Said) {
	call, options := b.agent.Asked(s.Params)
	switch {
	case b.Allow:
		b.permit(s.ID, options)
	case call == "": // so it cannot be shown to a person
		b.withdraw(s.ID)
	default:
		b.Turn.Asked[call] = s.ID
		b.Out.Raw(s.Line)
	}
}

// tick checks the deadlines. It returns false if the agent has not acted on the cancel of its turn
// in time.
func (b *Bridge) tick() bool {
	b.deliver()
	if b.Turn == nil || b.Session == "" {
		return true
	}
	b.agent.Poll()
	again, ended := b.Turn.look()
	switch {
	case ended:
		b.agent.Finished(bridge.Message{})
		return false
	case again:
		b.cancel()
	case b.Turn.TimedOut != nil || b.Turn.Interrupted || len(b.Turn.Asked) > 0:
	default:
		if limit := b.agent.MaxSilence(); limit > 0 && time.Since(b.Turn.LastLine) > limit {
			b.Turn.TimedOut, b.Turn.killAt = fmt.Errorf("%s within %s", b.Silent, limit), time.Now().Add(cancelGrace)
			b.agent.RecordTimeout()
			b.cancel()
		}
	}
	return true
}
