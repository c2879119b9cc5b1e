package cli

import (
	"fmt"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// trouble detects that a session is in a state that it does not leave by itself, in which a waiting
// client would wait forever.
type trouble struct {
	sessionID string
	final     bool // a terminated session counts as trouble
	caughtUp  bool // earlier states do not count
	status    client.Status
	reason    string
}

// known sets the state that precedes the events.
func (t *trouble) known(s client.Session) { t.status, t.reason = s.Status, s.StatusReason }

// take reads an event; the error describes the trouble.
func (t *trouble) take(e client.Event) error {
	switch e.Type {
	case client.MarkerCaughtUp:
		t.caughtUp = true
	case client.EventStatus:
		data, err := decode[client.StatusData](e)
		if err != nil {
			return err
		}
		t.status, t.reason = data.Status, data.Reason
	}
	switch {
	case !t.caughtUp:
		return nil
	case t.status == client.StatusError:
		return inError(t.sessionID, t.reason)
	case t.status == client.StatusTerminated && t.final:
		return fmt.Errorf("session %s is terminated", t.sessionID)
	}
	return nil
}

// inError returns an error for a session in error, with the remedies.
func inError(id, reason string) error {
	why := ""
	if reason != "" {
		why = " (" + terminal.OneLine(reason, maxReason) + ")"
	}
	return fmt.Errorf("session %s is in error%s; retry with overwinter session recover %s, or end it with overwinter session stop %s", id, why, id, id)
}
