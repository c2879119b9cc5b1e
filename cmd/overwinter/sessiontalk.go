package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// talk shows a session to a person and takes what the person types. One goroutine, that of run, has
// it; others read the stream and the lines, and make calls one after the other, so that the stream
// goes on meanwhile.
type talk struct {
	ctx    context.Context //nolint:containedctx // it lasts as long as run
	client *apiclient.Client
	id     string
	view   *terminal.View

	lines <-chan string // what is typed; nil: nobody types
	tty   bool          // in a terminal, which shows it itself
	live  bool          // what was before has been shown
	calls []call        // to be made

	asked  []wire.QuestionJSON // open questions that are not being answered, oldest first
	aside  []wire.QuestionJSON // open questions that the person has skipped
	closed map[string]bool     // questions that are not open any more
	dialog *terminal.Dialog    // with the person, about one that was in asked

	// The rest is nil or empty where a command does without it.
	prompt    string                              // shown where nothing is asked
	say       func(line string) error             // a line that answers nothing
	interrupt <-chan struct{}                     // Ctrl-C
	onBreak   func() (leave bool)                 // what it does
	observe   func(apiclient.Event) (bool, error) // sees every event; true ends the talk
}

// call is made beside the stream. What it returns is done when it is through.
type call func(ctx context.Context) (then func() error)

func newTalk(ctx context.Context, client *apiclient.Client, id string, view *terminal.View) *talk {
	return &talk{ctx: ctx, client: client, id: id, view: view, closed: map[string]bool{}}
}

// listen takes lines that are typed in a terminal, or come from a file.
func (t *talk) listen(s streams, tty bool) {
	t.lines, t.tty = readLines(t.ctx, s.stdin), tty
}

// readLines reads lines until the input ends, which closes the channel. The goroutine ends with the
// input, or with the program: a read of a terminal cannot be called off.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string) // a script is not read ahead
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				select {
				case lines <- strings.TrimRight(line, "\r\n"):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// received is what the stream has yielded.
type received struct {
	event apiclient.Event
	err   error
}

// followAll reads a stream beside its caller. The channel is closed when the stream has ended, or
// soon after ctx.
func followAll(ctx context.Context, client *apiclient.Client, id string, after int64) <-chan received {
	events := make(chan received) // the stream waits for who reads it
	go func() {
		defer close(events)
		for e, err := range client.Follow(ctx, id, after) {
			select {
			case events <- received{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// errLeave ends a talk in order.
var errLeave = errors.New("leave")

// run shows the events behind a position until the session is over or the talk is.
func (t *talk) run(after int64) error {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	events := followAll(ctx, t.client, t.id, after)
	todo, through := make(chan call), make(chan func() error)
	go func() {
		defer close(through)
		for c := range todo {
			then := c(ctx)
			select {
			case through <- then:
			case <-ctx.Done():
			}
		}
	}()
	err := t.loop(events, todo, through)
	cancel()
	close(todo)
	for range events { // both goroutines end before run does
	}
	for range through { // as above
	}
	if closeErr := t.view.Close(); err == nil || errors.Is(err, errLeave) {
		err = closeErr
	}
	return err
}

// loop takes things as they come.
func (t *talk) loop(events <-chan received, todo chan<- call, through <-chan func() error) error {
	for {
		if err := t.ask(); err != nil {
			return err
		}
		var next call
		var out chan<- call
		if len(t.calls) > 0 {
			next, out = t.calls[0], todo
		}
		lines := t.lines
		if t.dialog == nil && t.say == nil && !t.tty {
			lines = nil // a file of answers waits for the questions
		}
		var err error
		select {
		case out <- next:
			t.calls = t.calls[1:]
		case then := <-through:
			err = then()
		case line, ok := <-lines:
			err = t.line(line, ok)
		case <-t.interrupt:
			if t.onBreak() {
				err = errLeave
			}
		case r, ok := <-events:
			if !ok {
				return t.ctx.Err()
			}
			err = t.event(r)
		}
		if err != nil {
			return err
		}
	}
}

// event shows an event, and keeps the list of open questions.
func (t *talk) event(r received) error {
	if r.err != nil {
		return fmt.Errorf("follow %s: %w", t.id, r.err)
	}
	e := r.event
	if err := t.view.Event(e.EventJSON); err != nil {
		return err
	}
	switch e.Type {
	case apiclient.MarkerCaughtUp:
		if t.live = t.lines == nil; !t.live {
			t.calls = append(t.calls, t.openQuestions)
		}
	case apiclient.MarkerEnd:
		return errLeave
	case wire.EventQuestion:
		var data wire.QuestionData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		t.open(data.Question)
	case wire.EventQuestionResolved:
		var data wire.QuestionResolvedData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		t.resolved(data.QuestionID)
	}
	if t.observe == nil {
		return nil
	}
	over, err := t.observe(e)
	if err == nil && over {
		err = errLeave
	}
	return err
}

// open notes a question that waits, and reports whether it is news.
func (t *talk) open(q wire.QuestionJSON) bool {
	same := func(other wire.QuestionJSON) bool { return other.ID == q.ID }
	if t.closed[q.ID] || slices.ContainsFunc(t.asked, same) || t.dialog != nil && same(t.dialog.Question()) {
		return false
	}
	t.asked = append(t.asked, q)
	slices.SortFunc(t.asked, func(a, b wire.QuestionJSON) int { return cmp.Compare(a.ID, b.ID) }) // ids are in the order of time
	return true
}

func (t *talk) resolved(id string) {
	t.closed[id] = true
	gone := func(q wire.QuestionJSON) bool { return q.ID == id }
	t.asked, t.aside = slices.DeleteFunc(t.asked, gone), slices.DeleteFunc(t.aside, gone)
	if t.dialog != nil && t.dialog.Question().ID == id {
		t.dialog = nil
	}
}

// openQuestions shows the questions that were asked before the position that the talk began at.
func (t *talk) openQuestions(ctx context.Context) func() error {
	questions, err := t.client.QuestionList(ctx, t.id, session.QuestionOpen)
	return func() error {
		t.live = true
		if err != nil {
			return t.view.Notice("what the agent has asked before could not be read: " + err.Error())
		}
		for _, q := range slices.Backward(questions) { // newest first
			if !t.open(q) {
				continue
			}
			if err := t.showQuestion(q); err != nil {
				return err
			}
		}
		return nil
	}
}

// showQuestion shows a question as its event does.
func (t *talk) showQuestion(q wire.QuestionJSON) error {
	data, err := json.Marshal(wire.QuestionData{Question: q})
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	return t.view.Event(wire.EventJSON{Type: wire.EventQuestion, Data: data})
}

// ask puts the oldest open question to the person, and shows what is to be typed.
func (t *talk) ask() error {
	if t.dialog == nil && t.lines != nil && t.live && len(t.asked) > 0 {
		t.dialog = terminal.NewDialog(t.asked[0])
		t.asked = t.asked[1:]
	}
	if !t.tty {
		return nil
	}
	if t.dialog != nil {
		return t.view.Prompt(t.dialog.Prompt())
	}
	if t.live {
		return t.view.Prompt(t.prompt)
	}
	return nil
}

// line takes a line that was typed; ok is false at the end of the input.
func (t *talk) line(line string, ok bool) error {
	if !ok {
		t.lines = nil
		if t.dialog != nil {
			t.dialog = nil
			return t.view.Prompt("")
		}
		if t.say != nil {
			return errLeave
		}
		return t.view.Prompt("")
	}
	if t.tty {
		if err := t.view.Entered(line); err != nil {
			return err
		}
	}
	switch {
	case t.say != nil && (t.dialog == nil || isCommand(line)):
		return t.say(line)
	case t.dialog == nil:
		if strings.TrimSpace(line) == "" {
			return nil
		}
		return t.view.Notice("nothing is asked; overwinter session attach takes prompts")
	}
	return t.reply(line)
}

// reply goes on with the dialog.
func (t *talk) reply(line string) error {
	done, hint := t.dialog.Line(line)
	if hint != "" {
		return t.view.Notice(hint)
	}
	if !done {
		return nil
	}
	q, answer := t.dialog.Question(), t.dialog.Answer()
	t.dialog = nil
	t.calls = append(t.calls, func(ctx context.Context) func() error {
		_, err := t.client.QuestionAnswer(ctx, t.id, q.ID, apiclient.Reply{
			Answer: answer.Decision, Answers: answer.Answers, Message: answer.Message,
		})
		return func() error { return t.answered(q, err) }
	})
	return nil
}

// answered tells what became of an answer. Where it can be given again the question is.
func (t *talk) answered(q wire.QuestionJSON, err error) error {
	problem, refused := errors.AsType[*apiclient.Error](err)
	switch {
	case err == nil:
		return nil
	case refused && (problem.Code == session.CodeIllegalState || problem.Code == session.CodeTerminated):
		return t.view.Notice("the answer came too late: " + problem.Detail)
	}
	t.asked = append([]wire.QuestionJSON{q}, t.asked...)
	return t.view.Notice("the answer was not taken: " + err.Error())
}
