package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionReviewCmd asks the agent for a review.
type sessionReviewCmd struct {
	sessionArg
	Instructions string `arg:"" optional:"" help:"Focus of the review; - reads it from standard input. Default: all changes."`
	Wait         bool   `help:"Print the agent's output and return when the turn ends. Fails if the turn does not complete, or the session is in error."`
	timeoutFlag
	PromptID string `name:"id" placeholder:"ID" help:"ID of the prompt; repeating it has no effect. Default: a new ID."`
}

// Validate checks what kong cannot.
func (c *sessionReviewCmd) Validate() error { return needsWait(c.Timeout, c.Wait) }

// Run queues the prompt of the review, and with --wait prints its answer.
func (c *sessionReviewCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	text, err := promptText(c.Instructions, s.stdin)
	if err != nil {
		return err
	}
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		var after int64
		if c.Wait {
			if after, err = api.Position(ctx, id); err != nil {
				return err
			}
		}
		submitted, err := api.Review(ctx, id, text, c.PromptID)
		if err != nil {
			return err
		}
		if !c.Wait {
			return parent.printPrompt(s.stdout, submitted)
		}
		if !submitted.Created {
			after = 0 // the review was requested before, so its turn may be anywhere in the log
		}
		answer, err := c.await(ctx, s, parent, api, submitted.Prompt, after)
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
