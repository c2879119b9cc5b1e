package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionPromptCmd sends a prompt.
type sessionPromptCmd struct {
	sessionArg
	Text      string `arg:"" help:"The prompt; - reads it from standard input."`
	Wait      bool   `help:"Print the agent's output and return when the turn ends. Fails if the turn does not complete."`
	PromptID  string `name:"id" placeholder:"ID" help:"ID of the prompt; sending it again has no effect. Default: a new ID."`
	OnUnknown string `enum:"hold,retry,fail" default:"hold" placeholder:"POLICY" help:"What to do if the sandbox is lost during the turn: hold, retry or fail. Default ${default}."`
}

// Run sends the prompt, and with --wait prints its answer.
func (c *sessionPromptCmd) Run(ctx context.Context, logger *slog.Logger, s streams, parent *sessionCmd) error {
	text, err := promptText(c.Text, s.stdin)
	if err != nil {
		return err
	}
	return parent.with(func(client *apiclient.Client) error {
		// The newest event before the prompt: everything about the prompt comes after it.
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
			after = 0 // it was sent before, so its turn may be anywhere in the log
		}
		logger.DebugContext(ctx, "prompt accepted",
			slog.String("session_id", c.ID), slog.String("prompt_id", submitted.Prompt.ID), slog.Int64("position", submitted.Position))
		live := s.stdout
		if parent.json() {
			live = nil
		}
		answer, err := cli.Await(ctx, logger, client, submitted.Prompt, after, live)
		if err != nil {
			return err
		}
		if parent.json() {
			if err := printJSON(s.stdout, answer); err != nil {
				return err
			}
		}
		return answer.Outcome()
	})
}

func (c *sessionCmd) printPrompt(w io.Writer, p apiclient.Submitted) error {
	if c.json() {
		return printJSON(w, p)
	}
	_, err := fmt.Fprintf(w, "%s  %s, position %d\n", p.Prompt.ID, p.Prompt.Status, p.Position)
	return err
}
