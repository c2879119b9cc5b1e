package main

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
)

// sessionSyncCmd saves what a session has.
type sessionSyncCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *sessionSyncCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Sync, false)
}

// sessionRestartCmd moves a session to a new sandbox.
type sessionRestartCmd struct {
	sessionArg
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *sessionRestartCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.RestartEnvironment, c.Force)
}

// sessionDropCmd gives the sandbox of a session up.
type sessionDropCmd struct {
	sessionArg
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *sessionDropCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.TerminateEnvironment, c.Force)
}

// sessionRevertCmd takes an agent back.
type sessionRevertCmd struct {
	sessionArg
	Prompt string `arg:"" help:"ID of the first prompt to undo."`
	Force  bool   `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *sessionRevertCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		got, err := client.Revert(ctx, c.ID, c.Prompt, c.Force)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, got)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  %s: revert accepted\n", got.ID, got.Status)
		return err
	})
}
