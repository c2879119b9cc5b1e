package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// AttachOptions are the choices of Attach.
type AttachOptions struct {
	SessionID string
	// Last is the number of blocks of the conversation that are shown first.
	Last int
	View View
}

// attached is a console in which prompts and commands are typed.
type attached struct {
	*console
	text        composer
	turn        bool // a turn is running, according to the events that were read
	interrupted bool // Ctrl-C was pressed since the last line or turn
}

const attachPrompt = "> "

// Attach shows the latest blocks of a conversation and follows it. Lines typed in the terminal are
// prompts, answers to the agent's questions, or commands. Ctrl-C interrupts the running turn;
// pressed again it returns. Attach returns when the user leaves or the session ends; neither is an
// error.
func Attach(ctx context.Context, api *client.Client, in io.Reader, out io.Writer, o AttachOptions) error {
	ctx, interrupts, release := holdInterrupts(ctx)
	defer release()
	now, err := api.SessionGet(ctx, o.SessionID)
	if err != nil {
		return err
	}
	blocks, err := api.Blocks(ctx, o.SessionID)
	if err != nil {
		return err
	}
	view := o.View.on(out)
	title := ""
	if now.Title != "" {
		title = terminal.OneLine(now.Title, terminal.LineRunes) + ", "
	}
	if err := view.Notice(fmt.Sprintf("%s%s, %s; /help lists the commands", title, now.Agent, now.Status)); err != nil {
		return err
	}
	if err := resume(view, blocks, o.Last); err != nil {
		return err
	}
	a := &attached{console: newConsole(api, o.SessionID, view), turn: now.Queue.Processing > 0}
	if err := a.listen(ctx, in, true, o.View.rewrites(out)); err != nil {
		return err
	}
	a.prompt, a.handleLine, a.interrupt, a.onBreak, a.observe = attachPrompt, a.typed, interrupts, a.ctrlC, a.watch
	return a.run(ctx, blocks.Seq)
}

// watch notes whether a turn is running.
func (a *attached) watch(e client.Event) (bool, error) {
	switch e.Type {
	case client.EventTurnStart:
		a.turn, a.interrupted = true, false
	case client.EventTurnEnd:
		a.turn, a.interrupted = false, false
	}
	return false, nil
}

// ctrlC interrupts the running turn, and leaves when it is pressed again.
func (a *attached) ctrlC() bool {
	if a.interrupted {
		return true
	}
	a.interrupted = true
	a.text.reset()
	a.prompt = attachPrompt
	hint := "press Ctrl-C again to leave; the session continues"
	if a.turn {
		a.command(client.Abort, false)
		hint = "interrupting the turn; " + hint
	}
	return a.view.Notice(hint) != nil // leave if the terminal cannot be written to
}

// typed handles a line that does not answer a question.
func (a *attached) typed(line string) error {
	a.interrupted = false
	if !a.text.open() && isCommand(line) && !strings.HasPrefix(line, "//") {
		return a.runCommand(line)
	}
	prompt, complete := a.text.add(line)
	a.prompt = attachPrompt
	if !complete {
		a.prompt = "… "
		return nil
	}
	if prompt = unescape(prompt); strings.TrimSpace(prompt) == "" {
		return nil
	}
	a.calls = append(a.calls, func(ctx context.Context) func() error {
		_, err := a.client.PromptSubmit(ctx, a.id, client.Submit{Content: prompt})
		return func() error { return a.failed("the prompt was not accepted", err) }
	})
	return nil
}

// failed shows why a call has failed, if it has; the console continues.
func (a *attached) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return a.view.Notice(what + ": " + err.Error())
}
