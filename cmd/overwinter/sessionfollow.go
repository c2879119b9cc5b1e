package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// SessionFollowCmd shows what happens in a session.
type SessionFollowCmd struct {
	sessionArg
	viewFlags
	After  int64  `default:"0" placeholder:"SEQ" help:"Start after this position. Default ${default}, the beginning."`
	Until  string `enum:"end,idle" default:"end" placeholder:"WHEN" help:"When to return: end (the session is terminated) or idle (no prompt is left). Default ${default}."`
	Answer bool   `help:"Read answers to the agent's questions from standard input. Always on in a terminal."`
}

// Validate checks what kong cannot.
func (c *SessionFollowCmd) Validate() error {
	if c.After < 0 {
		return errors.New("--after must not be negative")
	}
	return nil
}

// Run shows the conversation, with -o json each event as it is.
func (c *SessionFollowCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
	if c.Answer && parent.json() {
		return usageError{"--answer does not go with -o json: answer with overwinter session answer"}
	}
	return parent.with(func(client *apiclient.Client) error {
		until := untilIdle{wanted: c.Until == "idle"}
		if until.wanted {
			// The queue as it was before the first event is read: from there on the
			// events tell, so that nothing is left unread when it is found empty.
			now, err := client.SessionGet(ctx, c.ID)
			if err != nil {
				return err
			}
			until.idle = now.Queue.Queued+now.Queue.Processing == 0
		}
		if parent.json() {
			return c.json(ctx, client, s.stdout, &until)
		}
		t := newTalk(ctx, client, c.ID, c.view(s.stdout))
		if tty := onTerminal(s.stdin); tty || c.Answer {
			t.listen(s, tty)
		}
		t.observe = until.take
		return t.run(c.After)
	})
}

// json prints a line for each event.
func (c *SessionFollowCmd) json(ctx context.Context, client *apiclient.Client, w io.Writer, until *untilIdle) error {
	for e, err := range client.Follow(ctx, c.ID, c.After) {
		if err != nil {
			return fmt.Errorf("follow %s: %w", c.ID, err)
		}
		line := e.Raw
		if e.Marker() {
			if line, err = json.Marshal(map[string]any{"type": e.Type, "data": e.Data}); err != nil {
				return fmt.Errorf("encode marker: %w", err)
			}
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
		if over, err := until.take(e); over || err != nil {
			return err
		}
	}
	return nil
}

// untilIdle finds out when a session has no prompt left to serve.
type untilIdle struct {
	wanted   bool
	idle     bool // no prompt is left, as far as has been read
	caughtUp bool
}

// take reads one event and reports whether to return.
func (u *untilIdle) take(e apiclient.Event) (bool, error) {
	switch e.Type {
	case apiclient.MarkerCaughtUp:
		u.caughtUp = true
	case wire.EventQueue:
		var queue wire.QueueData
		if err := json.Unmarshal(e.Data, &queue); err != nil {
			return false, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		u.idle = len(queue.Items) == 0
	}
	return u.wanted && u.caughtUp && u.idle, nil
}
