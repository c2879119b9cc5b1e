package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionWhyCmd explains a session.
type sessionWhyCmd struct {
	sessionArg
	Of   string `arg:"" optional:"" enum:"transition,prompt,receipt,question," default:"" help:"What to explain: transition, prompt, receipt or question. Default: the session's present state."`
	What string `arg:"" optional:"" name:"which" help:"ID of the prompt or question, or number of the transition. Default: the current one, else the newest."`
}

// Run prints the chain of causes.
func (c *sessionWhyCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		of, which := client.Subject(c.Of), c.What
		if of == "" {
			of = client.SubjectSession
		}
		if of == client.SubjectPrompt && which != "" {
			var err error
			if which, err = promptID(ctx, api, id, which); err != nil {
				return err
			}
		}
		if of == client.SubjectQuestion && which != "" {
			var err error
			if which, err = questionID(ctx, api, id, which); err != nil {
				return err
			}
		}
		e, err := api.Why(ctx, id, of, which)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, e)
		}
		return parent.printExplanation(s.stdout, e)
	})
}

// printExplanation writes a line for each cause and each disagreement.
func (c *sessionCmd) printExplanation(w io.Writer, e client.Explanation) error {
	var b strings.Builder
	for i, cause := range e.Causes {
		mark := "  because "
		if i == 0 {
			mark = ""
		}
		fmt.Fprintf(&b, "%s%s  [%s", mark, terminal.OneLine(cause.Text, maxCauseRunes), cause.Code)
		if cause.Source == "temporal" {
			b.WriteString(", Temporal")
		}
		if cause.Times > 1 {
			fmt.Fprintf(&b, ", %d times", cause.Times)
		}
		if cause.At != nil {
			b.WriteString(", " + c.when(*cause.At))
		}
		b.WriteString("]\n")
	}
	for _, d := range e.Disagreements {
		fmt.Fprintf(&b, "Postgres and Temporal disagree: %s  [%s]\n", terminal.OneLine(d.Text, maxCauseRunes), d.Code)
	}
	if e.Truncated || e.Temporal.Truncated {
		b.WriteString("Older causes were not read.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxCauseRunes bounds a line.
const maxCauseRunes = 600
