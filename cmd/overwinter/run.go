package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// runCmd manages runs.
type runCmd struct {
	apiFlags
	Start  runStartCmd  `cmd:"" help:"Run an input in a session or from a bundle."`
	List   runListCmd   `cmd:"" help:"List runs, newest first."`
	Show   runShowCmd   `cmd:"" help:"Show a run."`
	Cancel runCancelCmd `cmd:"" help:"Cancel a queued run, or interrupt a running one."`
}

// runArg names a run.
type runArg struct {
	ID string `arg:"" name:"run" help:"ID of the run."`
}

// printRuns writes one line for each run. Ids are not shortened, because commands require full ids.
func (c *runCmd) printRuns(w io.Writer, items ...client.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tSTATUS\tCREATED\tSESSION\tBUNDLE") // Flush returns the error
	for _, r := range items {
		status := string(r.Status)
		if r.Reason != "" {
			status += ": " + terminal.OneLine(r.Reason, terminal.TitleRunes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.RunID, status, c.when(r.CreatedAt), r.SessionID, cmp.Or(r.BundleID, "-"))
	}
	return t.Flush()
}

func (c *runCmd) printRun(w io.Writer, r client.Run) error {
	if c.json() {
		return printJSON(w, r)
	}
	return c.printRuns(w, r)
}

// runWaitFlags make a command wait for the end of a run.
type runWaitFlags struct {
	Wait bool `help:"Wait for the end of the run; fail if it does not complete."`
	timeoutFlag
}

// Validate checks what kong cannot.
func (f runWaitFlags) Validate() error { return needsWait(f.Timeout, f.Wait) }

// finish prints a run, with --wait after it has ended.
func (f runWaitFlags) finish(ctx context.Context, s streams, parent *runCmd, api *client.Client, run client.Run) error {
	if !f.Wait {
		return parent.printRun(s.stdout, run)
	}
	err := f.during(ctx, "run "+run.RunID, func(ctx context.Context) (err error) {
		run, err = api.RunWait(ctx, run.RunID)
		return err
	})
	if err == nil {
		err = parent.printRun(s.stdout, run)
	}
	if err == nil && run.Status != client.PromptCompleted {
		return fmt.Errorf("run %s ended %s", run.RunID, run.Status)
	}
	return err
}

// runStartCmd starts a run.
type runStartCmd struct {
	Input     string `arg:"" help:"Input for the agent, or - to read it from standard input."`
	Session   string `xor:"base" required:"" placeholder:"ID" help:"Session to continue."`
	Bundle    string `xor:"base" required:"" placeholder:"BUNDLE" help:"Bundle to start from, as listed by session bundles."`
	Fork      bool   `help:"Run in a fork, even if the base has unfinished prompts."`
	Profile   string `placeholder:"PROFILE" help:"Name or ID of a profile. Default: the base's."`
	Agent     string `placeholder:"NAME" help:"Agent of the run; an agent other than the base's requires --fork. Default: the base's."`
	OnUnknown string `enum:"hold,retry,fail" default:"hold" placeholder:"POLICY" help:"What to do if the outcome is lost: hold, retry or fail. Default ${default}."`
	runWaitFlags
	IdempotencyKey string `placeholder:"KEY" help:"Starting again with the same key and flags within 24 hours returns the same run. Default: a new key."`
}

// Run prints the run.
func (c *runStartCmd) Run(ctx context.Context, s streams, parent *runCmd) error {
	return parent.with(func(api *client.Client) error {
		input, err := promptText(c.Input, s.stdin)
		if err != nil {
			return err
		}
		base := c.Session
		if base != "" {
			if base, err = sessionID(ctx, api, base); err != nil {
				return err
			}
		}
		run, err := api.RunStart(ctx, client.RunRequest{
			BaseSessionID: base, BaseBundleID: c.Bundle, Input: input, Fork: c.Fork, Profile: c.Profile, Agent: c.Agent, OnUnknown: client.OnUnknown(c.OnUnknown),
		}, c.IdempotencyKey)
		if err != nil {
			return err
		}
		return c.finish(ctx, s, parent, api, run)
	})
}

// runListCmd lists runs.
type runListCmd struct {
	Session string `placeholder:"ID" help:"List only runs of this session."`
	Status  string `placeholder:"STATUS" help:"List only runs with this status, such as processing."`
	Agent   string `placeholder:"NAME" help:"List only runs of this agent."`
	Limit   int    `default:"50" placeholder:"N" help:"Maximum number of runs; 0 lists all. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *runListCmd) Validate() error {
	if c.Limit < 0 {
		return errors.New("--limit must not be negative")
	}
	return nil
}

// Run prints one line for each run.
func (c *runListCmd) Run(ctx context.Context, s streams, parent *runCmd) error {
	return parent.with(func(api *client.Client) (err error) {
		of := c.Session
		if of != "" {
			if of, err = sessionID(ctx, api, of); err != nil {
				return err
			}
		}
		page, err := api.RunList(ctx, client.RunFilter{SessionID: of, Status: client.PromptStatus(c.Status), Agent: c.Agent, Limit: c.Limit})
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		return parent.printRuns(s.stdout, page.Items...)
	})
}

// runShowCmd shows a run.
type runShowCmd struct {
	runArg
	runWaitFlags
}

// Run prints the run.
func (c *runShowCmd) Run(ctx context.Context, s streams, parent *runCmd) error {
	return parent.with(func(api *client.Client) error {
		run, err := api.RunGet(ctx, c.ID)
		if err != nil {
			return err
		}
		return c.finish(ctx, s, parent, api, run)
	})
}

// runCancelCmd cancels a run.
type runCancelCmd struct{ runArg }

// Run prints the run.
func (c *runCancelCmd) Run(ctx context.Context, s streams, parent *runCmd) error {
	return parent.with(func(api *client.Client) error {
		run, err := api.RunCancel(ctx, c.ID)
		if err != nil {
			return err
		}
		return parent.printRun(s.stdout, run)
	})
}
