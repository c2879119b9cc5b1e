package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// printSession writes the attributes of a session.
func (c *sessionCmd) printSession(w io.Writer, s client.Session) error {
	if c.json() {
		return printJSON(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, terminal.OneLine(fmt.Sprintf(format, args...), 0)) // Flush returns the error
	}
	row("id", "%s", s.ID)
	row("status", "%s%s", s.Status, inBrackets(s.StatusReason))
	if s.Doing.Text != "" {
		row("doing", "%s", s.Doing.Text)
	}
	row("agent", "%s%s", s.Agent, inBrackets(s.Options.Model))
	if s.Title != "" {
		row("title", "%s", s.Title)
	}
	if s.Profile != "" {
		row("profile", "%s", s.Profile)
	}
	c.workspaceRows(s, row)
	row("permissions", "%s", cmp.Or(s.Options.Permissions, client.PolicyAllow))
	if s.Options.QuestionTimeout != 0 {
		row("question timeout", "%s", time.Duration(s.Options.QuestionTimeout))
	}
	if s.Options.Checkpoint != "" {
		row("checkpoint", "%s", s.Options.Checkpoint)
	}
	row("created", "%s", c.when(s.CreatedAt))
	row("last activity", "%s", c.when(s.LastActivity))
	row("idle timeout", "%s", time.Duration(s.IdleTimeout))
	if s.SleepsAt != nil {
		row("sleeps", "%s", c.when(*s.SleepsAt))
	}
	if s.ExpiresAt != nil {
		row("new sandbox", "%s", c.when(*s.ExpiresAt))
	}
	if s.NextCheckpointAt != nil {
		row("next bundle", "%s", c.savedAt(*s.NextCheckpointAt))
	}
	unknown := ""
	if s.Queue.Unknown > 0 {
		unknown = fmt.Sprintf(", %d whose outcome is unknown (see session retry, resolve and dismiss)", s.Queue.Unknown)
	}
	row("queue", "%d queued, %d processing%s%s", s.Queue.Queued, s.Queue.Processing, unknown, c.heldText(s.Queue))
	if s.ForkedFrom != nil {
		at := inBrackets(s.ForkedFrom.BundleID)
		if s.ForkedFrom.Agent != "" {
			at += ", from the agent " + s.ForkedFrom.Agent
		}
		row("forked from", "%s%s", s.ForkedFrom.SessionID, at)
	}
	row("generation", "%d", s.Generation)
	if s.Receipt != nil {
		row("last restore", "%s%s", s.Receipt.Kind, inBrackets(strings.Join(s.Receipt.Missing, ", ")))
		if len(s.Receipt.Unchecked) > 0 {
			row("not compared", "%s", strings.Join(s.Receipt.Unchecked, ", "))
		}
	}
	if s.Runtime.Sandbox != nil {
		row("sandbox", "%s%s", s.Runtime.Sandbox.SandboxID, inBrackets(s.Runtime.Sandbox.Status))
	}
	row("active", "%s", time.Duration(s.Metrics.ActiveSeconds*float64(time.Second)).Round(time.Second))
	row("used", "%d messages, %d tool calls, %d tokens in, %d out, %s",
		s.Metrics.Messages, s.Metrics.ToolCalls, s.Metrics.InputTokens, s.Metrics.OutputTokens, costText(s.Metrics.CostUSD))
	if len(s.Metadata) > 0 && string(s.Metadata) != "{}" {
		row("metadata", "%s", s.Metadata)
	}
	return t.Flush()
}

// workspaceRows describe the initial content of the workspace.
func (c *sessionCmd) workspaceRows(s client.Session, row func(name, format string, args ...any)) {
	if s.Workspace == nil {
		return
	}
	if s.Workspace.RepoURL != "" {
		row("repository", "%s%s", s.Workspace.RepoURL, inBrackets(s.Workspace.Ref))
	}
	if s.Workspace.Setup != "" {
		row("setup", "%s", terminal.OneLine(s.Workspace.Setup, terminal.LineRunes))
	}
}

// printOpen writes the prompts that have not ended and the questions that are open, if there are any.
func (c *sessionCmd) printOpen(ctx context.Context, w io.Writer, api *client.Client, s client.Session) error {
	if s.Queue.Queued+s.Queue.Processing+s.Queue.Unknown > 0 {
		page, err := api.PromptList(ctx, s.ID)
		if err != nil {
			return err
		}
		fmt.Fprintln(w)
		if err := c.printPrompts(w, openPrompts(page.Items)); err != nil {
			return err
		}
	}
	questions, err := api.QuestionList(ctx, s.ID, client.QuestionOpen)
	if err != nil || len(questions.Items) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return c.printQuestions(w, questions.Items)
}

// printSessions writes one line for each session.
func (c *sessionCmd) printSessions(w io.Writer, sessions []client.Session) error {
	ids := make([]string, len(sessions))
	for i, s := range sessions {
		ids[i] = s.ID
	}
	short := shortIDs(session.SessionPrefix, ids)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATUS\tDOING\tAGENT\tQUEUE\tLAST ACTIVITY\tTITLE")
	for _, s := range sessions {
		held := ""
		if s.Queue.Held {
			held = " held"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d%s\t%s\t%s\n", short(s.ID), s.Status, terminal.OneLine(s.Doing.State, terminal.TitleRunes), terminal.OneLine(s.Agent, terminal.TitleRunes),
			s.Queue.Queued+s.Queue.Processing, held, c.when(s.LastActivity), terminal.OneLine(s.Title, terminal.TitleRunes))
	}
	return t.Flush()
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// costText formats a cost for display, or returns "-" if it is not known.
func costText(usd *float64) string {
	if usd == nil {
		return "cost -"
	}
	return fmt.Sprintf("$%.4f", *usd)
}
