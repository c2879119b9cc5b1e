package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionSyncCmd saves what a session has.
type sessionSyncCmd struct {
	sessionArg
	waitFlags
}

// Run asks and, with --wait, waits for the snapshot.
func (c *sessionSyncCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Sync, false)
}

// sessionRestartCmd moves a session to a new sandbox.
type sessionRestartCmd struct {
	sessionArg
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and, with --wait, waits for the new sandbox.
func (c *sessionRestartCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.RestartEnvironment, c.Force)
}

// sessionDropCmd discards the sandbox of a session.
type sessionDropCmd struct {
	sessionArg
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and, with --wait, waits until the sandbox is gone.
func (c *sessionDropCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.TerminateEnvironment, c.Force)
}

// sessionRevertCmd reverts an agent.
type sessionRevertCmd struct {
	sessionArg
	Prompt string `arg:"" help:"ID of the first prompt to undo, the unique beginning of one, or @last for the newest."`
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and, with --wait, waits until the agent is reverted.
func (c *sessionRevertCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.onPrompt(ctx, c.sessionArg, c.Prompt, func(api *client.Client, id, prompt string) error {
		return parent.carry(ctx, s, api, c.waitFlags, cli.Request{
			SessionID: id, Kind: client.RevertCommand, Force: c.Force,
			Send: func(ctx context.Context) (client.Session, bool, error) {
				got, err := api.Revert(ctx, id, prompt, c.Force)
				return got, true, err
			},
		})
	})
}
