package demoagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// MaxBlock bounds the text of one block, in bytes. Longer text becomes several blocks, because a
// translator keeps an open block in its state.
const MaxBlock = 8 << 10

// errInterrupted means that a turn was aborted on request.
var errInterrupted = errors.New("interrupted")

// failedError ends a turn, or a subagent, as failed.
type failedError struct{ reason string }

func (e *failedError) Error() string { return e.reason }

// turn is a prompt being executed, or a subagent's part of it.
type turn struct {
	*Agent
	ctx    context.Context //nolint:containedctx // done when the prompt is interrupted
	prompt demoformat.Line
	agent  string // the running subagent; empty for the main agent
	usage  *demoformat.Usage
	answer string // last text or output
	own    *delivery
}

// deliver executes a prompt. An error ends the process.
func (p *Agent) deliver(d *delivery) error {
	t := &turn{Agent: p, ctx: d.ctx, prompt: d.prompt, usage: &demoformat.Usage{Input: tokens(d.prompt.Content)}, own: d}
	if d.prompt.Type == demoformat.LineSteer {
		return t.decline(d.prompt)
	}
	if result, ok := p.memory.known[d.prompt.UUID]; ok {
		return errors.Join(t.declineAll(), t.stream(demoformat.Line{
			Type: demoformat.LineAcknowledged, UUID: d.prompt.UUID, Outcome: result.Outcome, Reason: result.Reason, Usage: result.Usage,
		}))
	}
	if err := t.stream(demoformat.Line{Type: demoformat.LineInit, Model: p.Model}); err != nil {
		return err
	}
	user := d.prompt
	user.At = user.At.UTC().Truncate(time.Millisecond)
	user.Usage = t.usage
	if err := t.record(user); err != nil {
		return err
	}
	result := demoformat.Line{Type: demoformat.LineResult, Outcome: string(session.OutcomeCompleted), Usage: t.usage}
	var failed *failedError
	switch err := t.whole(parseScript(d.prompt.Content)); {
	case errors.As(err, &failed):
		result.Outcome, result.Reason = string(session.OutcomeFailed), failed.reason
	case errors.Is(err, errInterrupted):
		result.Outcome, result.Reason = string(session.OutcomeCancelled), session.ReasonAborted
	case err != nil:
		return err
	}
	p.memory.known[d.prompt.UUID] = result
	return errors.Join(t.declineAll(), t.record(result))
}

// whole executes the script of the turn, and the scripts of prompts added meanwhile.
func (t *turn) whole(steps []step) error {
	for {
		if err := t.play(steps); err != nil {
			return err
		}
		lines := t.inbox.steers(t.own, true)
		if len(lines) == 0 {
			return nil
		}
		steps = nil
		if err := t.steered(lines); err != nil {
			return err
		}
	}
}

// steered executes the scripts of prompts added to the running turn, after the current step.
func (t *turn) steered(lines []demoformat.Line) error {
	for i, l := range lines {
		if t.ctx.Err() != nil {
			return errors.Join(errInterrupted, t.decline(lines[i:]...))
		}
		t.usage.Input += tokens(l.Content)
		taken := l
		taken.Type, taken.At, taken.Usage = demoformat.LineUser, l.At.UTC().Truncate(time.Millisecond), t.usage
		if err := t.record(taken); err != nil {
			return err
		}
		if err := t.play(parseScript(l.Content)); err != nil {
			return errors.Join(err, t.decline(lines[i+1:]...))
		}
	}
	return nil
}

// declineAll closes the turn to further prompts, and declines those that it has not accepted.
func (t *turn) declineAll() error {
	for {
		lines := t.inbox.steers(t.own, true)
		if len(lines) == 0 {
			return nil
		}
		if err := t.decline(lines...); err != nil {
			return err
		}
	}
}

func (t *turn) decline(lines ...demoformat.Line) error {
	for _, l := range lines {
		if err := t.stream(demoformat.Line{Type: demoformat.LineDeclined, UUID: l.UUID}); err != nil {
			return err
		}
	}
	return nil
}

// play executes the steps of a script in order until one ends the turn.
func (t *turn) play(steps []step) error {
	for _, s := range steps {
		if t.ctx.Err() != nil {
			return errInterrupted
		}
		if err := t.do(s); err != nil {
			return err
		}
		if t.own == nil {
			continue // text of a subagent
		}
		if err := t.steered(t.inbox.steers(t.own, false)); err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) do(s step) error {
	switch s.verb {
	case verbSay:
		return t.streamText(demoformat.KindText, s.lines...)
	case verbThink:
		return t.streamText(demoformat.KindThinking, textLine{text: s.text})
	case verbShell:
		return t.call(tool{
			name: demoformat.ToolShell, input: shellInput{Command: shown(s.text)}, title: "Run " + quotable(s.text),
			work: func(demoformat.Line) (answer, error) { return t.shell(s.text) },
		})
	case verbWrite:
		return t.call(tool{
			name: demoformat.ToolWrite, input: writeInput{File: s.name, Text: shown(s.text)}, title: "Write " + quotable(s.name),
			work: func(demoformat.Line) (answer, error) { return t.write(s.name, s.text) },
		})
	case verbLook:
		return t.call(tool{
			name: toolLook, input: lookInput{File: s.name},
			work: func(demoformat.Line) (answer, error) { return t.look(s.name) },
		})
	case verbTool:
		return t.call(tool{
			name: s.name, input: json.RawMessage(s.text),
			work: func(demoformat.Line) (answer, error) { return t.callTool(s.name, s.text) },
		})
	case verbSleep:
		return t.call(tool{
			name: toolSleep, input: sleepInput{Duration: s.pause.String()},
			work: func(demoformat.Line) (answer, error) { return t.sleep(s.pause) },
		})
	case verbAsk:
		return t.askUser(s)
	case verbRecall:
		text, err := t.memory.recall()
		if err != nil {
			text = fmt.Sprintf("I cannot remember: %v.", err)
		}
		return t.streamText(demoformat.KindText, textLine{text: text})
	case verbNote:
		return t.streamText(demoformat.KindText, textLine{text: cmp.Or(t.prompt.Note, "I was given no note.")})
	case verbTitle:
		title := []rune(s.text)
		return t.record(demoformat.Line{Type: demoformat.LineTitle, Content: string(title[:min(len(title), session.MaxTitleRunes)])})
	case verbFail:
		if err := t.record(demoformat.Line{Type: demoformat.LineSystem, UUID: t.NewID(), Subtype: "error", Content: s.text}); err != nil {
			return err
		}
		return &failedError{reason: s.text}
	case verbCrash:
		return errCrash
	case verbSubagent:
		return t.subagent(s)
	}
	return fmt.Errorf("no such step: %d", s.verb)
}

// say streams lines of text into blocks of one kind.
func (t *turn) streamText(kind string, lines ...textLine) error {
	var id string
	var text strings.Builder
	begin := func() error {
		id = t.NewID()
		text.Reset()
		return t.record(demoformat.Line{Type: demoformat.LineStart, UUID: id, Kind: kind})
	}
	finish := func(aborted bool) error {
		t.usage.Output += tokens(text.String())
		t.answer = text.String()
		return t.record(demoformat.Line{
			Type: demoformat.LineAssistant, UUID: id, Kind: kind, Content: text.String(), Aborted: aborted, Usage: t.usage,
		})
	}
	if err := begin(); err != nil {
		return err
	}
	for i, line := range lines {
		if i < len(lines)-1 {
			line.text += "\n"
		}
		for _, word := range words(line.text) {
			if !t.pause(line.pause) {
				if err := finish(true); err != nil {
					return err
				}
				return errInterrupted
			}
			if text.Len()+len(word) > MaxBlock {
				if err := errors.Join(finish(false), begin()); err != nil {
					return err
				}
			}
			text.WriteString(word)
			if err := t.stream(demoformat.Line{Type: demoformat.LineDelta, UUID: id, Content: word}); err != nil {
				return err
			}
		}
	}
	return finish(false)
}

// call calls a tool and records its result.
func (t *turn) call(c tool) error {
	raw, err := json.Marshal(c.input)
	if err != nil {
		return fmt.Errorf("input of %s: %w", c.name, err)
	}
	t.usage.ToolCalls++
	l := demoformat.Line{Type: demoformat.LineToolUse, UUID: t.NewID(), Name: c.name, Input: raw, Subagent: c.subagent, Usage: t.usage}
	if err := t.record(l); err != nil {
		return err
	}
	a, err := t.run(c, l)
	interrupted := errors.Is(err, errInterrupted)
	if err != nil && !interrupted {
		return err
	}
	output, encodeErr := json.Marshal(a.output)
	if encodeErr != nil {
		return fmt.Errorf("output of %s: %w", c.name, encodeErr)
	}
	return errors.Join(t.record(demoformat.Line{
		Type: demoformat.LineToolResult, UUID: t.NewID(), ToolUseID: l.UUID, Output: output, Images: a.images,
		IsError: a.failed || interrupted, Aborted: interrupted, Usage: t.usage,
	}), err)
}

// run executes a tool call, if it is allowed.
func (t *turn) run(c tool, call demoformat.Line) (answer, error) {
	if c.title != "" {
		if refused, ok, err := t.permit(call, c.title); err != nil || !ok {
			return refused, err
		}
	}
	if err := t.stream(demoformat.Line{Type: demoformat.LineToolRunning, UUID: call.UUID}); err != nil {
		return answer{}, err
	}
	return c.work(call)
}

// subagent makes another agent execute one line, in its own conversation.
func (t *turn) subagent(s step) error {
	id := t.NewID()
	return t.call(tool{name: s.name, subagent: id, input: subagentInput{Prompt: shown(s.text)}, work: func(demoformat.Line) (answer, error) {
		sub := &turn{Agent: t.Agent, ctx: t.ctx, prompt: t.prompt, agent: id, usage: t.usage}
		if err := sub.record(demoformat.Line{Type: demoformat.LineUser, UUID: t.NewID(), Content: s.text}); err != nil {
			return answer{}, err
		}
		steps := parseScript(s.text)
		for i := range steps {
			if steps[i].verb == verbSubagent { // one level is enough for a demonstration
				steps[i] = step{verb: verbSay, lines: []textLine{{text: s.text}}}
			}
		}
		err := sub.play(steps)
		var failed *failedError
		if errors.As(err, &failed) {
			return answer{output: failed.reason, failed: true}, nil
		}
		return answer{output: sub.answer}, err
	}})
}

// pause waits for d. It returns false if the turn was aborted meanwhile.
func (t *turn) pause(d time.Duration) bool {
	if d <= 0 {
		return t.ctx.Err() == nil
	}
	return t.sleeper.sleep(t.ctx, d)
}

// record writes a line to the transcript and then to the stream.
func (t *turn) record(l demoformat.Line) error { return t.emit(l, true) }

// stream writes a line only to the stream.
func (t *turn) stream(l demoformat.Line) error { return t.emit(l, false) }

func (t *turn) emit(l demoformat.Line, keep bool) error {
	l.RunID, l.Agent = t.prompt.RunID, t.agent
	if l.At.IsZero() {
		l.At = t.Now().UTC().Truncate(time.Millisecond)
	}
	encoded, err := l.Encode()
	if err != nil {
		return fmt.Errorf("encode %s line: %w", l.Type, err)
	}
	if keep {
		if err := t.memory.append(t.agent, encoded); err != nil {
			return err
		}
	}
	if _, err := t.Stdout.Write(encoded); err != nil {
		return fmt.Errorf("write stdout: %w", err)
	}
	return nil
}
