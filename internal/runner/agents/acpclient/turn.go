package acpclient

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Turn is a turn under way.
type Turn struct {
	Run         string
	Heard       time.Time // when the agent last did something
	Interrupted bool
	GaveUp      error                      // why the turn is no longer waited for
	Asked       map[string]json.RawMessage // ids of requests for permission, by call

	cancelled time.Time // when the last cancel was sent
	giveUpBy  time.Time
}

// look checks the deadlines: whether to cancel the turn again, and whether the agent has failed for
// too long to act on a cancel.
func (t *Turn) look() (again, over bool) {
	again = (t.Interrupted || t.GaveUp != nil) && time.Since(t.cancelled) > cancelInterval
	return again, t.GaveUp != nil && time.Now().After(t.giveUpBy)
}

// Ended returns how the turn has ended, from the response to its prompt, unless it was aborted or
// given up. Failed: it had no result, for the reason.
func (t *Turn) Ended(m bridge.Message) (o session.Outcome, reason string, failed bool) {
	switch {
	case t.GaveUp != nil:
		return session.OutcomeFailed, t.GaveUp.Error(), true
	case t.Interrupted:
		return session.OutcomeCancelled, session.ReasonAborted, false
	case m.Error != nil:
		return session.OutcomeFailed, m.Error.Message, true
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	acpformat.Decode(m.Result, &result)
	o, reason = acpformat.Stopped(result.StopReason)
	return o, reason, false
}
