package main

import (
	"context"
	"errors"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionFollowCmd shows a conversation and its updates.
type sessionFollowCmd struct {
	sessionArg
	viewFlags
	timeoutFlag
	After  int64  `default:"0" placeholder:"SEQ" help:"Start after this position. Default ${default}, the beginning."`
	Until  string `enum:"end,idle" default:"end" placeholder:"WHEN" help:"When to return: end (the session is terminated) or idle (no prompt is unfinished). Fails if the session is in error or, with idle, terminated. Default ${default}."`
	Answer bool   `help:"Read answers to the agent's questions from standard input. Always on in a terminal."`
}

// Validate checks what kong cannot.
func (c *sessionFollowCmd) Validate() error {
	if c.After < 0 {
		return errors.New("--after must not be negative")
	}
	return needsWait(c.Timeout, true)
}

// Run prints the conversation or, with -o json, each event as a line.
func (c *sessionFollowCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	if c.Answer && parent.json() {
		return usageError{"--answer cannot be used with -o json: answer with overwinter session answer"}
	}
	o := cli.FollowOptions{After: c.After, UntilIdle: c.Until == "idle", Answer: c.Answer, View: c.view()}
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		o.SessionID = id
		return c.during(ctx, "session "+id, func(ctx context.Context) error {
			if parent.json() {
				return cli.FollowJSON(ctx, api, s.stdout, o)
			}
			return cli.Follow(ctx, api, s.stdin, s.stdout, o)
		})
	})
}
