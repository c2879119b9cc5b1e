package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionPromptsCmd lists prompts.
type sessionPromptsCmd struct {
	sessionArg
	Open bool `help:"List only prompts that are queued or processing, or whose outcome is unknown."`
}

// Run prints one line for each prompt, oldest first.
func (c *sessionPromptsCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		page, err := api.PromptList(ctx, id)
		if err != nil {
			return err
		}
		if c.Open {
			page.Items = openPrompts(page.Items)
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		return parent.printPrompts(s.stdout, page.Items)
	})
}

// printPrompts writes one line for each prompt.
func (c *sessionCmd) printPrompts(w io.Writer, prompts []client.Prompt) error {
	ids := make([]string, len(prompts))
	for i, p := range prompts {
		ids[i] = p.ID
	}
	short := shortIDs(session.PromptPrefix, ids)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROMPT\t#\tSTATUS\tCREATED\tTEXT") // Flush returns the error
	for _, p := range prompts {
		fmt.Fprintf(t, "%s\t%d\t%s%s\t%s\t%s\n", short(p.ID), p.Ordinal, p.Status, inBrackets(terminal.OneLine(p.Reason, terminal.TitleRunes)),
			c.when(p.CreatedAt), terminal.OneLine(p.Content, terminal.TitleRunes))
	}
	return t.Flush()
}

// openPrompts returns the prompts that have not ended, and those that await a person's decision.
func openPrompts(prompts []client.Prompt) []client.Prompt {
	open := []client.Prompt{}
	for _, p := range prompts {
		if !p.Status.Final() || p.Status == client.PromptUnknown {
			open = append(open, p)
		}
	}
	return open
}

// sessionWithdrawCmd withdraws a prompt.
type sessionWithdrawCmd struct{ promptArg }

// Run prints the prompt.
func (c *sessionWithdrawCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.onPrompt(ctx, c.sessionArg, c.Prompt, func(api *client.Client, id, prompt string) error {
		p, err := api.PromptWithdraw(ctx, id, prompt)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, p)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  %s%s\n", p.ID, p.Status, inBrackets(p.Reason))
		return err
	})
}
