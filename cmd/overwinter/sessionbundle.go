package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionBundlesCmd lists, pins and unpins bundles.
type sessionBundlesCmd struct {
	sessionArg
	Limit int    `default:"50" placeholder:"N" help:"Maximum number of bundles; 0 lists all. Default ${default}."`
	Pin   string `placeholder:"BUNDLE" xor:"pin" help:"Keep this bundle until it is unpinned or the session is purged."`
	Unpin string `placeholder:"BUNDLE" xor:"pin" help:"Unpin this bundle: the retention policy applies again."`
}

// Validate checks what kong cannot.
func (c *sessionBundlesCmd) Validate() error {
	if c.Limit < 0 {
		return errors.New("--limit must not be negative")
	}
	return nil
}

// Run prints one line for each bundle, newest first.
func (c *sessionBundlesCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		if bundle := cmp.Or(c.Pin, c.Unpin); bundle != "" {
			if _, err := api.BundlePin(ctx, bundle, c.Pin != ""); err != nil {
				return err
			}
		}
		page, err := api.BundleList(ctx, id, c.Limit)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		return parent.printBundles(s.stdout, page.Items)
	})
}

// printBundles writes one line for each bundle. Ids are not shortened, because commands require
// full ids.
func (c *sessionCmd) printBundles(w io.Writer, bundles []client.Bundle) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BUNDLE\tCREATED\tAFTER PROMPT\tSIZE\t") // Flush returns the error
	for _, b := range bundles {
		notes := ""
		note := func(is bool, text string) {
			if is && notes != "" {
				text = ", " + text
			}
			if is {
				notes += text
			}
		}
		note(b.Head, "head")
		note(b.Pinned, "pinned")
		note(!b.Environment.Available, "no files")
		note(b.History.Outcome != "" && b.History.Outcome != "completed", b.History.Outcome)
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", b.ID, c.when(b.CreatedAt), cmp.Or(b.History.PromptID, "-"), b.Size, notes)
	}
	return t.Flush()
}
