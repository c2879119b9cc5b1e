package main

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// promptArg names a prompt of a session.
type promptArg struct {
	sessionArg
	Prompt string `arg:"" help:"ID of the prompt, the unique beginning of one, or @last for the newest."`
}

// sessionRetryCmd retries a prompt whose outcome is unknown.
type sessionRetryCmd struct{ promptArg }

// Run names the attempt whose outcome is unknown, so that a repeated request does not run the prompt twice.
func (c *sessionRetryCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.resolve(ctx, s, c.promptArg, func(api *client.Client, id, prompt string) (client.Prompt, error) {
		p, err := api.PromptGet(ctx, id, prompt)
		if err != nil {
			return p, err
		}
		if p.Attempts > 0 {
			return api.PromptRetryAttempt(ctx, id, prompt, p.Attempts)
		}
		return api.PromptRetry(ctx, id, prompt, p.RunID)
	})
}

// sessionResolveCmd records how a prompt with an unknown outcome ended.
type sessionResolveCmd struct {
	promptArg
	Outcome client.PromptStatus `arg:"" enum:"completed,failed" help:"How the prompt ended: completed or failed."`
	Note    string              `placeholder:"TEXT" help:"Note to store with the prompt."`
}

// Run resolves the prompt and prints it.
func (c *sessionResolveCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.resolve(ctx, s, c.promptArg, func(api *client.Client, id, prompt string) (client.Prompt, error) {
		return api.PromptResolve(ctx, id, prompt, c.Outcome, c.Note)
	})
}

// sessionDismissCmd cancels a prompt whose outcome is unknown.
type sessionDismissCmd struct {
	promptArg
	Note string `placeholder:"TEXT" help:"Note to store with the prompt."`
}

// Run dismisses the prompt and prints it.
func (c *sessionDismissCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.resolve(ctx, s, c.promptArg, func(api *client.Client, id, prompt string) (client.Prompt, error) {
		return api.PromptDismiss(ctx, id, prompt, c.Note)
	})
}

// resolve sends the decision and prints the prompt.
func (c *sessionCmd) resolve(
	ctx context.Context, s streams, arg promptArg, do func(api *client.Client, id, prompt string) (client.Prompt, error),
) error {
	return c.onPrompt(ctx, arg.sessionArg, arg.Prompt, func(api *client.Client, id, prompt string) error {
		p, err := do(api, id, prompt)
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(s.stdout, p)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  %s%s\n", p.ID, p.Status, inBrackets(terminal.OneLine(p.Reason, terminal.LineRunes)))
		return err
	})
}
