package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionWakeCmd wakes a session.
type sessionWakeCmd struct {
	sessionArg
	waitFlags
}

// Run sends the command and, with --wait, waits until the session runs.
func (c *sessionWakeCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Wake, false)
}

// sessionHibernateCmd hibernates a session.
type sessionHibernateCmd struct {
	sessionArg
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run sends the command and, with --wait, waits until the session is hibernated.
func (c *sessionHibernateCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Hibernate, c.Force)
}

// sessionStopCmd ends a session.
type sessionStopCmd struct {
	sessionArg
	waitFlags
}

// Run sends the command and, with --wait, waits until the session is terminated.
func (c *sessionStopCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Stop, false)
}

// sessionAbortCmd interrupts the running turn.
type sessionAbortCmd struct {
	sessionArg
	waitFlags
}

// Run sends the command and, with --wait, waits until the turn has ended.
func (c *sessionAbortCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Abort, false)
}

// sessionRecoverCmd retries a session in error.
type sessionRecoverCmd struct {
	sessionArg
	waitFlags
}

// Run sends the command and, with --wait, waits until the session runs or is in error again.
func (c *sessionRecoverCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s, c.sessionArg, c.waitFlags, client.Recover, false)
}

// command sends a command to a session and prints whether the command had an effect.
func (c *sessionCmd) command(ctx context.Context, s streams, arg sessionArg, wait waitFlags, cmd client.CommandKind, force bool) error {
	return c.on(ctx, arg, func(api *client.Client, id string) error {
		return c.execute(ctx, s, api, wait, cli.Request{
			SessionID: id, Kind: cmd, Force: force,
			Send: func(ctx context.Context) (client.Session, bool, error) {
				return api.Command(ctx, id, cmd, force)
			},
		})
	})
}

// execute sends a request, waits for its effect with --wait, and prints the session.
func (c *sessionCmd) execute(ctx context.Context, s streams, api *client.Client, wait waitFlags, r cli.Request) error {
	var got client.Session
	var accepted bool
	var err error
	outcome := " accepted"
	if wait.Wait {
		outcome = " applied"
		err = wait.during(ctx, fmt.Sprintf("%s of session %s", r.Kind, r.SessionID), func(ctx context.Context) error {
			got, accepted, err = cli.Execute(ctx, api, r, s.stderr)
			return err
		})
	} else {
		got, accepted, err = r.Send(ctx)
	}
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(s.stdout, got)
	}
	outcome = string(r.Kind) + outcome
	if !accepted {
		outcome = "nothing to do"
	}
	_, err = fmt.Fprintf(s.stdout, "%s  %s: %s\n", got.ID, got.Status, outcome)
	return err
}

// sessionPurgeCmd erases a session.
type sessionPurgeCmd struct {
	sessionArg
	Forks string `enum:"detach,purge," default:"" placeholder:"HOW" help:"Sessions that were forked from it: detach or purge them."`
	waitFlags
}

// purgePoll is the polling interval for a session that is being erased.
const purgePoll = 500 * time.Millisecond

// Run sends the request and, with --wait, waits until the session is erased.
func (c *sessionPurgeCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		got, err := api.Purge(ctx, id, client.ForksPolicy(c.Forks))
		if err != nil {
			return err
		}
		outcome := fmt.Sprintf("%s: purge accepted", got.Status)
		if c.Wait {
			outcome = "erased"
			if err := c.during(ctx, "the purge of session "+id, func(ctx context.Context) error { return awaitErased(ctx, api, id) }); err != nil {
				return err
			}
		}
		if parent.json() {
			return printJSON(s.stdout, got)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  %s\n", got.ID, outcome)
		return err
	})
}

// awaitErased returns when the session no longer exists.
func awaitErased(ctx context.Context, api *client.Client, id string) error {
	for {
		_, err := api.SessionGet(ctx, id)
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == client.CodeSessionNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(purgePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
