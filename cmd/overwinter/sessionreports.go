package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionGitCmd prints the state of the repository in a workspace. It does not wake the session.
type sessionGitCmd struct{ sessionArg }

// Run prints one line each for the workspace, the agent's report and the pull request.
func (c *sessionGitCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		g, err := api.Git(ctx, id)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, g)
		}
		return parent.printGit(s.stdout, g)
	})
}

func (c *sessionCmd) printGit(w io.Writer, g client.Git) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if g.Workspace == nil && g.Reported == nil && g.PullRequest == nil {
		fmt.Fprintln(t, "no repository is known") // Flush returns the error
	}
	if at := g.Workspace; at != nil {
		state := "clean"
		if at.Dirty {
			state = "not committed"
		}
		fmt.Fprintf(t, "workspace\t%s\t%s\t%s\n", branchAt(at.Branch, at.Head), state, c.when(at.ComputedAt))
	}
	if r := g.Reported; r != nil {
		of := ""
		if r.BaseBranch != "" {
			of = "for " + terminal.OneLine(r.BaseBranch, terminal.TitleRunes)
		}
		if r.CommitCount > 0 {
			of = strconv.FormatInt(r.CommitCount, 10) + " commits " + of
		}
		fmt.Fprintf(t, "agent\t%s\t%s\t%s\n", branchAt(r.Branch, r.Commit), of, c.when(r.At))
	}
	if p := g.PullRequest; p != nil {
		name := terminal.OneLine(p.Title, terminal.TitleRunes)
		if p.Number > 0 {
			name = "#" + strconv.FormatInt(p.Number, 10) + " " + name
		}
		fmt.Fprintf(t, "pull request\t%s\t%s\t%s\n", name, terminal.OneLine(p.State+" "+p.URL, terminal.LineRunes), c.when(p.UpdatedAt))
	}
	return t.Flush()
}

func branchAt(branch, head string) string {
	at := terminal.OneLine(branch, terminal.TitleRunes)
	if branch == "" {
		at = "detached"
	}
	if commit := terminal.OneLine(head, terminal.TitleRunes+1); commit != "" {
		at += " at " + commit[:min(len(commit), 12)]
	}
	return at
}

// sessionScreenshotsCmd lists the images that an agent has shown. It does not wake the session.
type sessionScreenshotsCmd struct{ sessionArg }

// Run prints one line for each image.
func (c *sessionScreenshotsCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		shots, err := api.ScreenshotList(ctx, id)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, shots)
		}
		t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ATTACHMENT\tBYTES\tSHOWN\tDESCRIPTION") // Flush returns the error
		for _, shot := range shots.Items {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", shot.Image.ID, shot.Image.Bytes, parent.when(shot.At), terminal.OneLine(shot.Description, terminal.LineRunes))
		}
		return t.Flush()
	})
}
