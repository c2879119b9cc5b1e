package main

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionReplaceCmd replaces the text of a prompt.
type sessionReplaceCmd struct {
	promptArg
	Text string `arg:"" help:"New text of the prompt, or - to read it from standard input."`
}

// Run replaces the text and prints the prompt.
func (c *sessionReplaceCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	text, err := promptText(c.Text, s.stdin)
	if err != nil {
		return err
	}
	return parent.resolve(ctx, s, c.promptArg, func(api *client.Client, id, prompt string) (client.Prompt, error) {
		return api.PromptReplace(ctx, id, prompt, text)
	})
}

// sessionPromoteCmd moves a prompt to the front of the queue.
type sessionPromoteCmd struct{ promptArg }

// Run promotes the prompt and prints it.
func (c *sessionPromoteCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.resolve(ctx, s, c.promptArg, func(api *client.Client, id, prompt string) (client.Prompt, error) {
		return api.PromptPromote(ctx, id, prompt)
	})
}

// sessionClearCmd cancels every queued prompt.
type sessionClearCmd struct{ sessionArg }

// Run clears the queue and prints the cancelled prompts.
func (c *sessionClearCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		cleared, err := api.QueueClear(ctx, id)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, cleared)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  cancelled %d queued prompts\n", id, len(cleared.PromptIDs))
		return err
	})
}
