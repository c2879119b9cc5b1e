package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// PromptAnswer is a prompt as it ended, with the text that the agent wrote in its turns.
type PromptAnswer struct {
	Prompt resource.PromptJSON `json:"prompt"`
	Answer string              `json:"answer"`
}

// Await follows a session from a position before a prompt's turn until the prompt has ended, and returns it
// with its answer. It writes the answer to out while the agent writes it, without what could control a
// terminal; nil writes nothing. The error is one of reading or writing: see Outcome for how the prompt
// ended. Warnings, of a question that the turn waits for or a session in error, go to the logger.
func Await(
	ctx context.Context, logger *slog.Logger, client *apiclient.Client, prompt resource.PromptJSON, after int64, out io.Writer,
) (PromptAnswer, error) {
	var text strings.Builder
	a := answer{promptID: prompt.ID, out: &text}
	if out != nil {
		a.out, a.printable = io.MultiWriter(out, &text), true
	}
	final := prompt
	for e, err := range client.Follow(ctx, prompt.SessionID, after) {
		if err != nil {
			return PromptAnswer{}, fmt.Errorf("wait for prompt %s: %w", prompt.ID, err)
		}
		if err := warnOfQuestion(ctx, logger, e, a.runID); err != nil {
			return PromptAnswer{}, err
		}
		if err := warnOfBlock(ctx, logger, e, prompt.ID); err != nil {
			return PromptAnswer{}, err
		}
		ended, err := a.take(e)
		if err != nil {
			return PromptAnswer{}, err
		}
		if ended == nil || runsAgain(ended) {
			continue
		}
		content := final.Content // the event does not have it
		final = *ended
		final.Content = content
		break
	}
	if !final.Status.Final() { // the session was terminated and the stream did not say how the prompt ended
		var err error
		if final, err = client.PromptGet(ctx, prompt.SessionID, prompt.ID); err != nil {
			return PromptAnswer{}, err
		}
	}
	if err := a.finish(); err != nil {
		return PromptAnswer{}, err
	}
	return PromptAnswer{Prompt: final, Answer: text.String()}, nil
}

// Outcome is nil for a prompt that was completed, else an error that says how it ended.
func (a PromptAnswer) Outcome() error { return outcome(a.Prompt) }

// maxReason bounds the characters of a reason in an error.
const maxReason = 200

func outcome(p resource.PromptJSON) error {
	if p.Status == session.PromptCompleted {
		return nil
	}
	reason := ""
	if p.Reason != "" {
		reason = " (" + terminal.OneLine(p.Reason, maxReason) + ")"
	}
	return fmt.Errorf("prompt %s ended %s%s", p.ID, p.Status, reason)
}

// runsAgain reports whether a prompt that has ended will be retried.
func runsAgain(p *resource.PromptJSON) bool {
	return p.Status == session.PromptUnknown && p.OnUnknown == session.Retry
}

// warnOfQuestion warns that a run waits for the answer to a question.
func warnOfQuestion(ctx context.Context, logger *slog.Logger, e apiclient.Event, runID string) error {
	if e.Type != event.TypeQuestion {
		return nil
	}
	data, err := decode[event.QuestionData](e)
	if err != nil {
		return err
	}
	if q := data.Question; runID != "" && q.RunID == runID {
		logger.WarnContext(ctx, "the agent asks; answer with overwinter session answer",
			slog.String("session_id", q.SessionID), slog.String("question_id", q.ID),
			slog.String("question", terminal.OneLine(q.Title, terminal.LineRunes)))
	}
	return nil
}

// warnOfBlock warns that a prompt waits because its session is in error.
func warnOfBlock(ctx context.Context, logger *slog.Logger, e apiclient.Event, promptID string) error {
	if e.Type != event.TypePrompt {
		return nil
	}
	data, err := decode[event.PromptData](e)
	if err != nil {
		return err
	}
	if p := data.Prompt; p.ID == promptID && p.BlockedReason != "" {
		logger.WarnContext(ctx, "the prompt is blocked: its session is in error; recover the session to continue, or stop it",
			slog.String("session_id", p.SessionID), slog.String("prompt_id", p.ID),
			slog.String("reason", terminal.OneLine(p.BlockedReason, terminal.LineRunes)))
	}
	return nil
}
