package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionSyncCmd saves a bundle of a session.
type sessionSyncCmd struct {
	sessionArg
	waitFlags
}

// Run sends the command and, with --wait, waits for the snapshot.
func (c *sessionSyncCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Sync, false)
}

// sessionRestartCmd moves a session to a new sandbox.
type sessionRestartCmd struct {
	sessionArg
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run sends the command and, with --wait, waits for the new sandbox.
func (c *sessionRestartCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.RestartEnvironment, c.Force)
}

// sessionDropCmd discards the sandbox of a session.
type sessionDropCmd struct {
	sessionArg
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run sends the command and, with --wait, waits until the sandbox is terminated.
func (c *sessionDropCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.TerminateEnvironment, c.Force)
}
