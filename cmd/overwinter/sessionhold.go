package main

import (
	"context"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionHoldCmd holds the queue of a session.
type sessionHoldCmd struct {
	sessionArg
	Reason string `placeholder:"TEXT" help:"Reason, shown with the session."`
}

// Run holds the queue and prints its state.
func (c *sessionHoldCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		got, err := api.Hold(ctx, id, c.Reason)
		if err != nil {
			return err
		}
		return parent.printQueue(s, got)
	})
}

// sessionReleaseCmd releases the queue of a session.
type sessionReleaseCmd struct{ sessionArg }

// Run releases the queue and prints its state.
func (c *sessionReleaseCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		got, err := api.Release(ctx, id)
		if err != nil {
			return err
		}
		return parent.printQueue(s, got)
	})
}

// printQueue writes the state of a session's queue in one line.
func (c *sessionCmd) printQueue(s streams, got client.Session) error {
	if c.json() {
		return printJSON(s.stdout, got)
	}
	_, err := fmt.Fprintf(s.stdout, "%s  %s: %d queued, %d processing%s\n", got.ID, got.Status, got.Queue.Queued, got.Queue.Processing, c.heldText(got.Queue))
	return err
}

// heldText describes a hold with its reason.
func (c *sessionCmd) heldText(q client.Queue) string {
	if !q.Held {
		return ""
	}
	text := ", held"
	if q.HeldSince != nil {
		text += " since " + q.HeldSince.Local().Format(time.DateTime)
	}
	return text + inBrackets(terminal.OneLine(q.HeldReason, terminal.LineRunes))
}
