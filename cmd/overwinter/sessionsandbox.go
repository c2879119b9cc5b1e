package main

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
)

// SessionSyncCmd saves what a session has.
type SessionSyncCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *SessionSyncCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Sync, false)
}

// SessionRestartCmd moves a session to a new sandbox.
type SessionRestartCmd struct {
	sessionArg
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *SessionRestartCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.RestartEnvironment, c.Force)
}

// SessionDropCmd gives the sandbox of a session up.
type SessionDropCmd struct {
	sessionArg
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *SessionDropCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.TerminateEnvironment, c.Force)
}

// SessionRevertCmd takes an agent back.
type SessionRevertCmd struct {
	sessionArg
	Prompt string `arg:"" help:"ID of the first prompt to undo."`
	Force  bool   `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *SessionRevertCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
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
