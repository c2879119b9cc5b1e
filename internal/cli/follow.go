package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/client"
)

// FollowOptions are the choices of Follow.
type FollowOptions struct {
	SessionID string
	// After is the position after which events are shown; 0 is the beginning.
	After int64
	// UntilIdle returns when no prompt is queued or processing, with an error if the session is terminated.
	// Default: when the session is terminated. A session in error is an error in both cases.
	UntilIdle bool
	// Answer reads answers to the agent's questions from the input, also if that is not a terminal.
	Answer bool
	View   View
}

// Follow shows the conversation of a session and what is added to it.
func Follow(ctx context.Context, api *client.Client, in io.Reader, out io.Writer, o FollowOptions) error {
	until, err := newUntil(ctx, api, o)
	if err != nil {
		return err
	}
	t := newConsole(api, o.SessionID, o.View.on(out))
	if tty := IsTerminal(in); tty || o.Answer {
		if err := t.listen(ctx, in, tty, o.View.rewrites(out)); err != nil {
			return err
		}
	}
	t.observe = until.take
	return t.run(ctx, o.After)
}

// FollowJSON prints each event as a line of JSON. View and Answer have no effect.
func FollowJSON(ctx context.Context, api *client.Client, out io.Writer, o FollowOptions) error {
	until, err := newUntil(ctx, api, o)
	if err != nil {
		return err
	}
	for e, err := range api.Follow(ctx, o.SessionID, o.After) {
		if err != nil {
			return fmt.Errorf("follow %s: %w", o.SessionID, err)
		}
		line := e.Raw
		if e.Marker() {
			if line, err = json.Marshal(map[string]any{"type": e.Type, "data": e.Data}); err != nil {
				return fmt.Errorf("encode marker: %w", err)
			}
		}
		if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
			return err
		}
		if done, err := until.take(e); done || err != nil {
			return err
		}
	}
	return nil
}

// until decides when to return: when no prompt is queued or processing, if requested, and with an
// error if the session cannot reach that state.
type until struct {
	idleWanted bool
	idle       bool // no prompt is queued or processing, according to the events that were read
	caughtUp   bool
	trouble    trouble
}

// newUntil reads the session before the first event. Later changes are in the events, so no event
// is unread when the queue becomes empty.
func newUntil(ctx context.Context, api *client.Client, o FollowOptions) (*until, error) {
	now, err := api.SessionGet(ctx, o.SessionID)
	if err != nil {
		return nil, err
	}
	u := &until{idleWanted: o.UntilIdle, idle: now.Queue.Queued+now.Queue.Processing == 0, trouble: trouble{sessionID: o.SessionID, final: o.UntilIdle}}
	u.trouble.known(now)
	return u, nil
}

// take reads one event and reports whether to return.
func (u *until) take(e client.Event) (bool, error) {
	switch e.Type {
	case client.MarkerCaughtUp:
		u.caughtUp = true
	case client.EventQueue:
		queue, err := decode[client.QueueData](e)
		if err != nil {
			return false, err
		}
		u.idle = len(queue.Items) == 0
	}
	if err := u.trouble.take(e); err != nil {
		return false, err
	}
	return u.idleWanted && u.caughtUp && u.idle, nil
}
