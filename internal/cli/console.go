package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// console shows a session to a user and handles the typed input. Only the goroutine of run uses it.
type console struct {
	client *client.Client
	id     string
	view   *terminal.View

	lines <-chan string // typed lines; nil if nothing is read
	tty   bool          // lines come from a terminal
	keys  *keyboard     // of that terminal, if the view shows the input; nil if the terminal echoes it
	live  bool          // all events before the start have been shown
	calls []call        // API calls to be made, in order

	asked  []client.Question // open questions that are not being answered, oldest first
	aside  []client.Question // open questions that the user has skipped
	closed map[string]bool   // IDs of questions that are no longer open
	dialog *terminal.Dialog  // about the question that is being answered

	// The following fields are nil or empty in commands that do not need them.
	prompt     string                           // shown while nothing is asked
	handleLine func(line string) error          // handles a line that does not answer a question
	interrupt  <-chan struct{}                  // Ctrl-C
	onBreak    func() (leave bool)              // handles it
	observe    func(client.Event) (bool, error) // sees every event; true ends it
}

// call is one API call, made outside the goroutine of run. The returned function runs in that
// goroutine.
type call func(ctx context.Context) (then func() error)

func newConsole(api *client.Client, id string, view *terminal.View) *console {
	return &console{client: api, id: id, view: view, closed: map[string]bool{}}
}

// listen starts reading lines from a terminal or a file. Reading ends with ctx. With own, the view
// shows the typed text.
func (t *console) listen(ctx context.Context, in io.Reader, tty, own bool) error {
	t.tty = tty
	file, ok := in.(*os.File)
	if !tty || !own || !ok {
		t.lines = readLines(ctx, in)
		return nil
	}
	keys, err := newKeyboard(file)
	if err != nil {
		return err
	}
	t.keys, t.lines = keys, keys.lines
	t.view.OwnInput()
	go keys.read(ctx)
	return nil
}

// typing returns the channels of the keyboard; nil without one.
func (t *console) typing() (text <-chan string, resized <-chan os.Signal) {
	if t.keys == nil || t.lines == nil {
		return nil, nil
	}
	return t.keys.typing, t.keys.resized
}

// errLeave ends a console without an error.
var errLeave = errors.New("leave")

// run shows the events after a position until the session or the console ends.
func (t *console) run(ctx context.Context, after int64) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	events := stream(inner, t.client, t.id, after)
	todo, done := make(chan call), make(chan func() error)
	go func() {
		defer close(done)
		for c := range todo {
			result := c(inner)
			select {
			case done <- result:
			case <-inner.Done():
			}
		}
	}()
	err := t.loop(ctx, events, todo, done)
	cancel()
	close(todo)
	for range events { // both goroutines end before run does
	}
	for range done {
	}
	closeErr := t.view.Close()
	if t.keys != nil {
		closeErr = errors.Join(closeErr, t.keys.restore())
	}
	if err == nil || errors.Is(err, errLeave) {
		err = closeErr
	}
	return err
}

func (t *console) loop(ctx context.Context, events <-chan received, todo chan<- call, done <-chan func() error) error {
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
		if t.dialog == nil && t.handleLine == nil && !t.tty {
			lines = nil // a file of answers waits for the questions
		}
		typing, resized := t.typing()
		var err error
		select {
		case text := <-typing:
			err = t.view.Typing(text)
		case <-resized:
			err = t.view.Redraw()
		case out <- next:
			t.calls = t.calls[1:]
		case result := <-done:
			err = result()
		case line, ok := <-lines:
			err = t.line(line, ok)
		case <-t.interrupt:
			if t.keys != nil {
				t.keys.clear()
				err = t.view.Typing("")
			}
			if t.onBreak() {
				err = errLeave
			}
		case r, ok := <-events:
			if !ok {
				return ctx.Err()
			}
			err = t.event(r)
		}
		if err != nil {
			return err
		}
	}
}

// event shows an event and updates the open questions.
func (t *console) event(r received) error {
	if r.err != nil {
		return fmt.Errorf("follow %s: %w", t.id, r.err)
	}
	e := r.event
	if err := show(t.view, e); err != nil {
		return err
	}
	switch e.Type {
	case client.MarkerCaughtUp:
		if t.live = t.lines == nil; !t.live {
			t.calls = append(t.calls, t.openQuestions)
		}
	case client.MarkerEnd:
		return errLeave
	case client.EventQuestion:
		data, err := decode[client.QuestionData](e)
		if err != nil {
			return err
		}
		t.open(data.Question)
	case client.EventQuestionResolved:
		data, err := decode[client.QuestionResolvedData](e)
		if err != nil {
			return err
		}
		t.resolved(data.QuestionID)
	}
	if t.observe == nil {
		return nil
	}
	done, err := t.observe(e)
	if err == nil && done {
		err = errLeave
	}
	return err
}

// line handles a typed line; ok is false at the end of the input.
func (t *console) line(line string, ok bool) error {
	if !ok {
		t.lines = nil
		if t.dialog != nil {
			t.dialog = nil
			return t.view.Prompt("")
		}
		if t.handleLine != nil {
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
	case t.handleLine != nil && (t.dialog == nil || isCommand(line)):
		return t.handleLine(line)
	case t.dialog != nil:
		return t.reply(line)
	case strings.TrimSpace(line) == "":
		return nil
	}
	return t.view.Notice("no question is open; overwinter session attach takes prompts")
}
