package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionPromptsCmd lists prompts.
type sessionPromptsCmd struct {
	sessionArg
	Open bool `help:"List only prompts that are queued or processing."`
}

// Run prints one line for each prompt, oldest first.
func (c *sessionPromptsCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(client *apiclient.Client, id string) error {
		page, err := client.PromptList(ctx, id)
		if err != nil {
			return err
		}
		if c.Open {
			page.Items = openPrompts(page.Items)
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ID\t#\tSTATUS\tCREATED\tPROMPT") // Flush returns the error
		for _, p := range page.Items {
			fmt.Fprintf(t, "%s\t%d\t%s%s\t%s\t%s\n", p.ID, p.Ordinal, p.Status, inBrackets(terminal.OneLine(p.Reason, terminal.TitleRunes)), p.CreatedAt,
				terminal.OneLine(p.Content, terminal.TitleRunes))
		}
		return t.Flush()
	})
}

// openPrompts are those that have not ended.
func openPrompts(prompts []resource.PromptJSON) []resource.PromptJSON {
	open := []resource.PromptJSON{}
	for _, p := range prompts {
		if !p.Status.Final() {
			open = append(open, p)
		}
	}
	return open
}

// sessionWithdrawCmd withdraws a prompt.
type sessionWithdrawCmd struct {
	sessionArg
	Prompt string `arg:"" help:"ID of the prompt."`
}

// Run prints the prompt.
func (c *sessionWithdrawCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(client *apiclient.Client, id string) error {
		p, err := client.PromptWithdraw(ctx, id, c.Prompt)
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
