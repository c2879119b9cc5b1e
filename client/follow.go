package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
)

// Position returns the seq of the newest event of a session, or 0 if it has no events.
func (c *Client) Position(ctx context.Context, sessionID string) (int64, error) {
	for e, err := range c.Follow(ctx, sessionID, Latest) {
		if err != nil {
			return 0, err
		}
		if e.Type == MarkerCaughtUp { // the first message, since no events follow the newest one
			var at CaughtUpData
			err := e.Decode(&at)
			return at.Seq, err
		}
	}
	return 0, errors.New("the stream ended before it sent its position")
}

// Follow yields the events of a session that follow the position after, in order and each once,
// until the session has ended (the last event is then MarkerEnd), the server returns an error, or
// ctx is done. Position 0 is the start of the log, and Latest its end. Follow reconnects if an
// established connection breaks. It yields MarkerCaughtUp once. An error is yielded last.
func (c *Client) Follow(ctx context.Context, sessionID string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := follower{yield: yield}
		f.source = source{client: c, path: sessionPath(sessionID) + "/events", position: after, take: f.take}
		if err := f.source.run(ctx); err != nil {
			yield(Event{}, err)
		}
	}
}

// refused reports whether reconnecting cannot succeed.
func refused(err error) bool {
	problem, ok := errors.AsType[*Error](err)
	return ok && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
}

// follower is the state of one call of Follow.
type follower struct {
	source   source
	yield    func(Event, error) bool
	caughtUp bool // the marker has been yielded
}

// take yields the event or marker of a message.
func (f *follower) take(m message) (done bool, err error) {
	if m.data == "" {
		return false, nil
	}
	switch m.event {
	case MarkerCaughtUp, MarkerGap, MarkerEnd:
		return f.marker(m)
	}
	e := Event{Raw: json.RawMessage(m.data)}
	if err := json.Unmarshal(e.Raw, &e); err != nil {
		return false, fmt.Errorf("read event: %w", err)
	}
	if e.Seq <= f.source.position {
		return false, nil
	}
	f.source.position = e.Seq
	return !f.yield(e, nil), nil
}

func (f *follower) marker(m message) (done bool, err error) {
	e := Event{Type: m.event, Data: json.RawMessage(m.data), Raw: json.RawMessage(m.data)}
	switch m.event {
	case MarkerCaughtUp:
		var at CaughtUpData
		if err := e.Decode(&at); err != nil {
			return false, err
		}
		f.source.position = max(f.source.position, at.Seq) // a reader of new events must not miss any while it is disconnected
		if f.caughtUp {
			return false, nil
		}
		f.caughtUp = true
	case MarkerGap:
		var gap GapData
		if err := e.Decode(&gap); err != nil {
			return false, err
		}
		f.source.position = max(f.source.position, gap.To)
	}
	return !f.yield(e, nil) || m.event == MarkerEnd, nil
}
