package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// SessionPromptCmd sends a prompt.
type SessionPromptCmd struct {
	sessionArg
	Text      string `arg:"" help:"The prompt; - reads it from standard input."`
	Wait      bool   `help:"Print the agent's output and return when the turn ends. Fails if the turn does not complete."`
	PromptID  string `name:"id" placeholder:"ID" help:"ID of the prompt; sending it again has no effect. Default: a new ID."`
	OnUnknown string `enum:"hold,retry,fail" default:"hold" placeholder:"POLICY" help:"What to do if the sandbox is lost during the turn: hold, retry or fail. Default ${default}."`
}

// promptAnswer is what --wait prints for programs.
type promptAnswer struct {
	Prompt wire.PromptJSON `json:"prompt"`
	Answer string          `json:"answer"`
}

// Run sends the prompt, and with --wait prints its answer.
func (c *SessionPromptCmd) Run(ctx context.Context, logger *slog.Logger, s streams, parent *SessionCmd) error {
	text, err := promptText(c.Text, s.stdin)
	if err != nil {
		return err
	}
	return parent.with(func(client *apiclient.Client) error {
		// The newest event before the prompt: everything about it comes behind.
		var after int64
		if c.Wait {
			if after, err = client.Position(ctx, c.ID); err != nil {
				return err
			}
		}
		submitted, err := client.PromptSubmit(ctx, c.ID, apiclient.Submit{Content: text, ID: c.PromptID, OnUnknown: c.OnUnknown})
		if err != nil {
			return err
		}
		if !c.Wait {
			return parent.printPrompt(s.stdout, submitted)
		}
		if !submitted.Created {
			after = 0 // it was sent before: its turn may be anywhere in the log
		}
		logger.DebugContext(ctx, "prompt accepted",
			slog.String("session_id", c.ID), slog.String("prompt_id", submitted.Prompt.ID), slog.Int64("position", submitted.Position))
		return c.wait(ctx, logger, client, submitted.Prompt, after, s.stdout, parent)
	})
}

func (c *SessionCmd) printPrompt(w io.Writer, p apiclient.Submitted) error {
	if c.json() {
		return printJSON(w, p)
	}
	_, err := fmt.Fprintf(w, "%s  %s, position %d\n", p.Prompt.ID, p.Prompt.Status, p.Position)
	return err
}

// wait follows the session from a position before the prompt's turn until the prompt is over.
func (c *SessionPromptCmd) wait(
	ctx context.Context, logger *slog.Logger, client *apiclient.Client, prompt wire.PromptJSON, after int64, w io.Writer, parent *SessionCmd,
) error {
	live := w
	var text strings.Builder
	if parent.json() {
		live = io.Discard
	}
	a := answer{promptID: prompt.ID, out: io.MultiWriter(live, &text), clean: !parent.json()}
	final := prompt
	for e, err := range client.Follow(ctx, prompt.SessionID, after) {
		if err != nil {
			return fmt.Errorf("wait for prompt %s: %w", prompt.ID, err)
		}
		if err := warnOfQuestion(ctx, logger, e, a.runID); err != nil {
			return err
		}
		if err := warnOfBlock(ctx, logger, e, prompt.ID); err != nil {
			return err
		}
		over, err := a.take(e)
		if err != nil {
			return err
		}
		if over == nil || (over.Status == session.PromptUnknown && over.OnUnknown == session.Retry) {
			continue // a prompt that is retried runs again
		}
		content := final.Content // which the event does not have
		final = *over
		final.Content = content
		break
	}
	if !final.Status.Over() { // the session is over and the stream did not say
		var err error
		if final, err = client.PromptGet(ctx, prompt.SessionID, prompt.ID); err != nil {
			return err
		}
	}
	if err := a.finish(); err != nil {
		return err
	}
	if parent.json() {
		if err := printJSON(w, promptAnswer{Prompt: final, Answer: text.String()}); err != nil {
			return err
		}
	}
	return outcome(final)
}

// outcome is nil for a prompt that was completed, else an error that says how it ended.
func outcome(p wire.PromptJSON) error {
	if p.Status == session.PromptCompleted {
		return nil
	}
	return fmt.Errorf("prompt %s ended %s%s", p.ID, p.Status, inBrackets(terminal.OneLine(p.Reason, 200)))
}

// warnOfQuestion tells whoever waits for a run that it waits for an answer.
func warnOfQuestion(ctx context.Context, logger *slog.Logger, e apiclient.Event, runID string) error {
	if e.Type != wire.EventQuestion {
		return nil
	}
	var data wire.QuestionData
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return fmt.Errorf("read event %d: %w", e.Seq, err)
	}
	if q := data.Question; runID != "" && q.RunID == runID {
		logger.WarnContext(ctx, "the agent asks; answer with overwinter session answer",
			slog.String("session_id", q.SessionID), slog.String("question_id", q.ID), slog.String("question", terminal.OneLine(q.Title, lineRunes)))
	}
	return nil
}

// warnOfBlock says that the prompt waits because its session is in error.
func warnOfBlock(ctx context.Context, logger *slog.Logger, e apiclient.Event, promptID string) error {
	if e.Type != wire.EventPrompt {
		return nil
	}
	var data wire.PromptData
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return fmt.Errorf("read event %d: %w", e.Seq, err)
	}
	if p := data.Prompt; p.ID == promptID && p.BlockedReason != "" {
		logger.WarnContext(ctx, "the prompt is blocked: its session is in error; recover the session to continue, or stop it",
			slog.String("session_id", p.SessionID), slog.String("prompt_id", p.ID), slog.String("reason", terminal.OneLine(p.BlockedReason, lineRunes)))
	}
	return nil
}

// answer prints what the agent says in the turns of one prompt, as it comes.
type answer struct {
	promptID string
	out      io.Writer
	clean    bool   // for a terminal
	runID    string // the run that has the prompt now
	blockID  string // the text block that is being printed
	printed  int    // bytes of that block
	any      bool   // something has been printed
	newline  bool   // and it ended in one
}

// take reads one event. Over is the prompt when it has its outcome.
func (a *answer) take(e apiclient.Event) (over *wire.PromptJSON, err error) {
	switch e.Type {
	case wire.EventPrompt:
		var data wire.PromptData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		if data.Prompt.ID == a.promptID && data.Prompt.Status.Over() {
			whole := data.Prompt.Whole()
			return &whole, nil
		}
	case wire.EventTurnStart:
		var data wire.TurnStartData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		if data.PromptID == a.promptID {
			a.runID = data.RunID
		}
	case string(conversation.EventBlockStart), string(conversation.EventBlockComplete):
		var data conversation.BlockComplete
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		if a.mine(e) && data.Block.Type == conversation.AssistantText {
			return nil, a.block(data.Block)
		}
	case string(conversation.EventTextDelta):
		var data conversation.TextDelta
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		if a.mine(e) && data.BlockID == a.blockID {
			return nil, a.print(data.Delta)
		}
	}
	return nil, nil
}

// mine reports whether an event belongs to the main conversation of the prompt's turn.
func (a *answer) mine(e apiclient.Event) bool {
	return a.runID != "" && e.RunID == a.runID && (e.ConversationID == conversation.Main || e.ConversationID == "")
}

// block prints what of a block has not been printed.
func (a *answer) block(b conversation.Block) error {
	if b.ID != a.blockID {
		if err := a.finish(); err != nil {
			return err
		}
		a.blockID, a.printed = b.ID, 0
	}
	if a.printed < len(b.Content) {
		return a.print(b.Content[a.printed:])
	}
	return nil
}

func (a *answer) print(text string) error {
	a.printed += len(text)
	if a.clean {
		text = terminal.Printable(text)
	}
	if text == "" {
		return nil
	}
	a.any, a.newline = true, strings.HasSuffix(text, "\n")
	_, err := io.WriteString(a.out, text)
	return err
}

// finish ends the line that is being printed.
func (a *answer) finish() error {
	if !a.any || a.newline {
		return nil
	}
	a.newline = true
	_, err := io.WriteString(a.out, "\n")
	return err
}
