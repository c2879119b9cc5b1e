package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// PromptAnswer is a prompt as it ended, with the text that the agent wrote in its turns.
type PromptAnswer struct {
	Prompt client.Prompt `json:"prompt"`
	Answer string        `json:"answer"`

	terminated bool // the session was terminated before the prompt ended
}

// Await follows a session from a position before a prompt's turn until the prompt has ended, and
// returns it with its answer. It writes the answer to out while the agent writes it, without
// terminal control sequences; a nil out discards it. Messages for the user, for example about a
// question of the agent, are written to notes. The error is one of reading or writing, or reports
// that the session is in error and runs no prompt; Outcome returns how the prompt ended.
func Await(
	ctx context.Context, api *client.Client, prompt client.Prompt, after int64, out, notes io.Writer,
) (PromptAnswer, error) {
	var text strings.Builder
	a := answer{promptID: prompt.ID, out: &text}
	if out != nil {
		a.out, a.printable = io.MultiWriter(out, &text), true
	}
	final, sessionTrouble, held := prompt, trouble{sessionID: prompt.SessionID}, heldNote{notes: notes, sessionID: prompt.SessionID}
	delay := delayNote{notes: notes, sessionID: prompt.SessionID}
	for e, err := range api.Follow(ctx, prompt.SessionID, after) {
		if err != nil {
			return PromptAnswer{}, fmt.Errorf("wait for prompt %s: %w", prompt.ID, err)
		}
		if err := noteQuestion(notes, e, a.runID); err != nil {
			return PromptAnswer{}, err
		}
		ended, err := a.take(e)
		if err != nil {
			return PromptAnswer{}, err
		}
		if err := held.take(e, a.runID == "" && ended == nil); err != nil {
			return PromptAnswer{}, err
		}
		if err := delay.take(e); err != nil {
			return PromptAnswer{}, err
		}
		if ended == nil || runsAgain(ended) {
			if err := sessionTrouble.take(e); err != nil {
				return PromptAnswer{}, errors.Join(a.finish(), fmt.Errorf("prompt %s waits: %w", prompt.ID, err))
			}
			continue
		}
		content := final.Content // the event does not have it
		final = *ended
		final.Content = content
		break
	}
	unreported := !final.Status.Final() // the session was terminated and the stream did not report the prompt's end
	if unreported {
		var err error
		if final, err = api.PromptGet(ctx, prompt.SessionID, prompt.ID); err != nil {
			return PromptAnswer{}, err
		}
	}
	if err := a.finish(); err != nil {
		return PromptAnswer{}, err
	}
	if !a.any && final.Status == client.PromptCompleted {
		if _, err := fmt.Fprintf(notes, "the turn is completed; the agent wrote no text (overwinter session follow %s shows what it did)\n", prompt.SessionID); err != nil {
			return PromptAnswer{}, err
		}
	}
	return PromptAnswer{Prompt: final, Answer: text.String(), terminated: unreported}, nil
}

// Outcome returns nil for a completed prompt, otherwise an error that describes how it ended.
func (a PromptAnswer) Outcome() error {
	err := outcome(a.Prompt)
	if err != nil && a.terminated {
		return fmt.Errorf("%w: session %s is terminated", err, a.Prompt.SessionID)
	}
	return err
}

// maxReason bounds the characters of a reason in an error.
const maxReason = terminal.ProblemRunes

func outcome(p client.Prompt) error {
	if p.Status == client.PromptCompleted {
		return nil
	}
	reason := ""
	if p.Reason != "" {
		reason = " (" + terminal.OneLine(p.Reason, maxReason) + ")"
	}
	return fmt.Errorf("prompt %s ended %s%s", p.ID, p.Status, reason)
}

// runsAgain reports whether a prompt that has ended will be retried.
func runsAgain(p *client.Prompt) bool {
	return p.Status == client.PromptUnknown && p.OnUnknown == client.OnUnknownRetry
}

// noteQuestion reports that a run waits for the answer to a question, and how to answer it.
func noteQuestion(notes io.Writer, e client.Event, runID string) error {
	if e.Type != client.EventQuestion {
		return nil
	}
	data, err := decode[client.QuestionData](e)
	if err != nil {
		return err
	}
	q := data.Question
	if runID == "" || q.RunID != runID {
		return nil
	}
	how := "once|session|always|reject"
	switch {
	case len(q.Questions) == 1:
		how = "TEXT" + optionsOf(q.Questions[0])
	case len(q.Questions) > 1:
		how = "--answer 'QUESTION=TEXT'"
	}
	_, err = fmt.Fprintf(notes, "the agent waits for an answer: %s\nto answer: overwinter session answer %s %s %s\n",
		terminal.OneLine(q.Title, terminal.LineRunes), q.SessionID, q.ID, how)
	return err
}

// optionsOf lists the options of an item, which may be answered by number.
func optionsOf(item client.QuestionItem) string {
	if len(item.Options) == 0 {
		return ""
	}
	labels := make([]string, len(item.Options))
	for i, o := range item.Options {
		labels[i] = fmt.Sprintf("%d %s", i+1, o.Label)
	}
	return ", or a number: " + terminal.OneLine(strings.Join(labels, ", "), terminal.LineRunes)
}
