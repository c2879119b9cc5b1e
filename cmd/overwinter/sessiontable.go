package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// printSession writes one session as a list of what it is.
func (c *sessionCmd) printSession(w io.Writer, s resource.SessionJSON) error {
	if c.json() {
		return printJSON(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, terminal.OneLine(fmt.Sprintf(format, args...), 0)) // Flush returns the error
	}
	row("id", "%s", s.ID)
	row("status", "%s%s", s.Status, inBrackets(s.StatusReason))
	row("agent", "%s%s", s.Agent, inBrackets(s.Options.Model))
	if s.Title != "" {
		row("title", "%s", s.Title)
	}
	row("created", "%s", s.CreatedAt)
	row("last activity", "%s", s.LastActivity)
	row("idle timeout", "%s", time.Duration(s.IdleTimeout))
	row("queue", "%d queued, %d processing", s.Queue.Queued, s.Queue.Processing)
	row("generation", "%d", s.Generation)
	if s.Receipt != nil {
		row("last restore", "%s%s", s.Receipt.Kind, inBrackets(strings.Join(s.Receipt.Missing, ", ")))
		if len(s.Receipt.Unchecked) > 0 {
			row("not compared", "%s", strings.Join(s.Receipt.Unchecked, ", "))
		}
	}
	if s.Runtime.Sandbox != nil {
		row("sandbox", "%s%s", s.Runtime.Sandbox.SandboxID, inBrackets(string(s.Runtime.Sandbox.Status)))
	}
	row("active", "%s", time.Duration(s.Metrics.ActiveSeconds*float64(time.Second)).Round(time.Second))
	row("used", "%d messages, %d tool calls, %d tokens in, %d out, %s",
		s.Metrics.Messages, s.Metrics.ToolCalls, s.Metrics.InputTokens, s.Metrics.OutputTokens, costText(s.Metrics.CostUSD))
	if len(s.Metadata) > 0 && string(s.Metadata) != "{}" {
		row("metadata", "%s", s.Metadata)
	}
	return t.Flush()
}

// printSessions writes one line for each session.
func printSessions(w io.Writer, sessions []resource.SessionJSON) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATUS\tAGENT\tQUEUE\tLAST ACTIVITY\tTITLE")
	for _, s := range sessions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, s.Status, terminal.OneLine(s.Agent, terminal.TitleRunes),
			s.Queue.Queued+s.Queue.Processing, s.LastActivity, terminal.OneLine(s.Title, terminal.TitleRunes))
	}
	return t.Flush()
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// costText is a cost for people, "-" if it is not known.
func costText(usd *float64) string {
	if usd == nil {
		return "cost -"
	}
	return fmt.Sprintf("$%.4f", *usd)
}
