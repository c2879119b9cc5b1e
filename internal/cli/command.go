package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// attachHelp is the output of /help.
const attachHelp = `a line        a prompt, or the answer to the agent's question
a line \      continues in the next line; """ begins and ends a prompt of several lines
/answer TEXT  answers the oldest question: once, session, always, reject WHY, a number, or words
/reject WHY   rejects it
/skip         sets the question aside so that prompts can be typed; /answer returns to it
/status       shows the session: its state, model, queue and open questions
/queue        lists the prompts that have not ended
/model NAME   changes the model from the next turn on; without NAME shows it
/files [TEXT] lists the files of the workspace whose paths begin with TEXT
/diff         shows what has changed in the workspace
/abort        interrupts the current turn, as Ctrl-C does
/hibernate    hibernates the session after its turn; /hibernate now at once
/wake         wakes it
/stop         terminates it permanently
/quit         leaves, as Ctrl-D does; the session continues
//TEXT        sends /TEXT to the agent`

// isCommand reports whether a typed line is a command.
func isCommand(line string) bool { return strings.HasPrefix(line, "/") }

// unescape turns //x into /x: a prompt for an agent that has slash commands.
func unescape(prompt string) string {
	if strings.HasPrefix(prompt, "//") {
		return prompt[1:]
	}
	return prompt
}

// runCommand carries out a typed command.
func (a *attached) runCommand(line string) error {
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
			return a.view.Notice("no question is open")
		}
		a.aside = append(a.aside, a.dialog.Question())
		a.dialog = nil
		return nil
	case "/status":
		a.calls = append(a.calls, a.showStatus)
		return nil
	case "/queue":
		a.calls = append(a.calls, a.showQueue)
		return nil
	case "/model":
		a.calls = append(a.calls, a.model(rest))
		return nil
	case "/files":
		a.calls = append(a.calls, a.showFiles(rest))
		return nil
	case "/diff":
		a.calls = append(a.calls, a.showDiff)
		return nil
	case "/" + string(client.Abort), "/" + string(client.Wake), "/" + string(client.Stop), "/" + string(client.Recover):
		a.command(client.CommandKind(word[1:]), false)
		return nil
	case "/" + string(client.Hibernate):
		a.command(client.Hibernate, rest == "now")
		return nil
	}
	return a.view.Notice("unknown command " + terminal.OneLine(word, terminal.LineRunes) + "; /help lists the commands, //TEXT sends /TEXT to the agent")
}

// command sends a command to the session.
func (a *attached) command(cmd client.CommandKind, force bool) {
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

// answerTo continues the dialog, or begins one about a question that was skipped.
func (a *attached) answerTo(word, rest string) error {
	if a.dialog == nil {
		if len(a.aside) == 0 {
			return a.view.Notice("no question is open")
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
