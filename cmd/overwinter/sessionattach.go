package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/terminal"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// SessionAttachCmd talks with an agent.
type SessionAttachCmd struct {
	sessionArg
	viewFlags
	Last int `default:"20" placeholder:"N" help:"Number of blocks of the conversation to show first. Default ${default}."`
}

// Help tells what can be typed.
func (c *SessionAttachCmd) Help() string {
	return `In a terminal a line that is typed is a prompt, or the answer to a question of the agent; /help lists what else
there is. Ctrl-C interrupts the running turn, and pressed again leaves; the session goes on.

Where standard input is no terminal each of its lines is a prompt. The answers are printed as the agent gives them,
with -o json each as a line of JSON with its prompt, and the command ends when all prompts are over; one that was not
completed is a failure.

A line that ends in a backslash goes on in the next, and what stands between two lines of """ is one prompt.`
}

// Validate checks what kong cannot.
func (c *SessionAttachCmd) Validate() error {
	if c.Last < 0 {
		return errors.New("--last must not be negative")
	}
	return nil
}

// Run talks until one of the two leaves.
func (c *SessionAttachCmd) Run(ctx context.Context, logger *slog.Logger, s streams, parent *SessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		if !onTerminal(s.stdin) {
			return c.script(ctx, logger, client, s, parent)
		}
		if parent.json() {
			return usageError{"-o json is for prompts that are not typed in a terminal"}
		}
		return c.interactive(ctx, client, s)
	})
}

// attached is a talk in which prompts are typed.
type attached struct {
	*talk
	text   composer
	turn   bool // one is running, as far as is known
	broken bool // Ctrl-C was pressed since the last line or turn
}

const attachPrompt = "> "

func (c *SessionAttachCmd) interactive(ctx context.Context, client *apiclient.Client, s streams) error {
	ctx, breaks, release := holdInterrupts(ctx)
	defer release()
	now, err := client.SessionGet(ctx, c.ID)
	if err != nil {
		return err
	}
	conv, err := client.Blocks(ctx, c.ID)
	if err != nil {
		return err
	}
	view := c.view(s.stdout)
	title := ""
	if now.Title != "" {
		title = terminal.OneLine(now.Title, lineRunes) + ", "
	}
	if err := view.Notice(fmt.Sprintf("%s%s, %s; /help lists what can be typed", title, now.Agent, now.Status)); err != nil {
		return err
	}
	if err := view.Resume(conv, c.Last); err != nil {
		return err
	}
	a := &attached{talk: newTalk(ctx, client, c.ID, view), turn: now.Queue.Processing > 0}
	a.listen(s, true)
	a.prompt, a.say, a.interrupt, a.onBreak, a.observe = attachPrompt, a.typed, breaks, a.ctrlC, a.watch
	return a.run(conv.Seq)
}

// holdInterrupts returns a context that lasts when ctx is ended by Ctrl-C, whose every press is told
// instead. Other signals end it.
func holdInterrupts(ctx context.Context) (context.Context, <-chan struct{}, func()) {
	presses := make(chan os.Signal, 1)
	others := make(chan os.Signal, 1)
	signal.Notify(presses, os.Interrupt)
	signal.Notify(others, syscall.SIGTERM, syscall.SIGHUP)
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		// The program's own context ends with the first signal and says which.
		if cause := context.Cause(ctx); !strings.HasPrefix(cause.Error(), os.Interrupt.String()) {
			cancel(cause)
		}
	})
	breaks := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-presses:
				select {
				case breaks <- struct{}{}:
				case <-held.Done():
					return
				}
			case sig := <-others:
				cancel(errors.New(sig.String()))
			case <-held.Done():
				return
			}
		}
	}()
	return held, breaks, func() {
		stop()
		signal.Stop(presses)
		signal.Stop(others)
		cancel(context.Canceled)
		<-done
	}
}

// watch keeps an eye on whether a turn is running.
func (a *attached) watch(e apiclient.Event) (bool, error) {
	switch e.Type {
	case wire.EventTurnStart:
		a.turn, a.broken = true, false
	case wire.EventTurnEnd:
		a.turn, a.broken = false, false
	}
	return false, nil
}

// ctrlC aborts the running turn, and leaves when it is pressed again.
func (a *attached) ctrlC() bool {
	if a.broken {
		return true
	}
	a.broken = true
	a.text.reset()
	a.prompt = attachPrompt
	hint := "press Ctrl-C again to leave; the session continues"
	if a.turn {
		a.command(apiclient.Abort, false)
		hint = "interrupting the turn; " + hint
	}
	return a.view.Notice(hint) != nil // a terminal that cannot be written to is left
}

// isCommand reports whether a typed line is a command.
func isCommand(line string) bool { return strings.HasPrefix(line, "/") }

// typed takes a line that answers nothing.
func (a *attached) typed(line string) error {
	a.broken = false
	if !a.text.open() && isCommand(line) && !strings.HasPrefix(line, "//") {
		return a.obey(line)
	}
	prompt, whole := a.text.add(line)
	a.prompt = attachPrompt
	if !whole {
		a.prompt = "… "
		return nil
	}
	if prompt = unescape(prompt); strings.TrimSpace(prompt) == "" {
		return nil
	}
	a.calls = append(a.calls, func(ctx context.Context) func() error {
		_, err := a.client.PromptSubmit(ctx, a.id, apiclient.Submit{Content: prompt})
		return func() error { return a.failed("the prompt was not taken", err) }
	})
	return nil
}

// unescape makes /x of a prompt //x, for agents that have commands of their own.
func unescape(prompt string) string {
	if strings.HasPrefix(prompt, "//") {
		return prompt[1:]
	}
	return prompt
}

// failed tells of a call that did not work; the talk goes on.
func (a *attached) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return a.view.Notice(what + ": " + err.Error())
}

func (a *attached) command(cmd apiclient.Command, force bool) {
	a.calls = append(a.calls, func(ctx context.Context) func() error {
		got, accepted, err := a.client.Command(ctx, a.id, cmd, force)
		return func() error {
			if err == nil && !accepted {
				return a.view.Notice(fmt.Sprintf("nothing to %s: the session is %s", cmd, got.Status))
			}
			return a.failed(fmt.Sprintf("%s was refused", cmd), err)
		}
	})
}

// attachHelp is what /help prints.
const attachHelp = `a line        a prompt, or the answer where the agent asks
a line \      goes on in the next; """ begins and ends a prompt of many lines
/answer TEXT  answers the oldest question; once, session, always, reject WHY, a number, or words
/reject WHY   rejects it
/skip         leaves the question alone, for prompts to be typed; /answer comes back to it
/abort        interrupts the running turn, as Ctrl-C does
/hibernate    lets the session sleep after its turn; /hibernate now at once
/wake         wakes it
/stop         ends it for good
/quit         leaves, as Ctrl-D does; the session goes on
//TEXT        sends /TEXT to the agent`

// obey does what a typed command says.
func (a *attached) obey(line string) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "/help":
		return a.view.Notice(attachHelp)
	case "/quit", "/exit":
		return errLeave
	case "/answer", "/reject":
		return a.answerTo(word, rest)
	case "/skip":
		if a.dialog == nil {
			return a.view.Notice("nothing is asked")
		}
		a.aside = append(a.aside, a.dialog.Question())
		a.dialog = nil
		return nil
	case "/" + string(apiclient.Abort), "/" + string(apiclient.Wake), "/" + string(apiclient.Stop), "/" + string(apiclient.Recover):
		a.command(apiclient.Command(word[1:]), false)
		return nil
	case "/" + string(apiclient.Hibernate):
		a.command(apiclient.Hibernate, rest == "now")
		return nil
	}
	return a.view.Notice("there is no command " + terminal.OneLine(word, lineRunes) + "; /help lists them, and //TEXT sends /TEXT to the agent")
}

// answerTo goes on with the dialog, or begins one with a question that was skipped.
func (a *attached) answerTo(word, rest string) error {
	if a.dialog == nil {
		if len(a.aside) == 0 {
			return a.view.Notice("nothing is asked")
		}
		a.dialog = terminal.NewDialog(a.aside[0])
		a.aside = a.aside[1:]
	}
	if word == "/reject" {
		return a.reply(strings.TrimSpace(word + " " + rest))
	}
	if rest == "" {
		return a.showQuestion(a.dialog.Question())
	}
	return a.reply(rest)
}
