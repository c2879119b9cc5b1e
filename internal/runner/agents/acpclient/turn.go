package acpclient

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
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
	// Refused is the status with which the model's server has refused the agent's key, or 0.
	Refused int

	cancelled time.Time // when the last cancel was sent
	giveUpBy  time.Time
}

// look checks the deadlines: whether to cancel the turn again, and whether the agent has failed for
// too long to act on a cancel.
func (t *Turn) look() (again, over bool) {
	again = (t.Interrupted || t.GaveUp != nil) && time.Since(t.cancelled) > cancelInterval
	return again, t.GaveUp != nil && time.Now().After(t.giveUpBy)
}

// authRequired is the code of an error of an agent that has no key, or none that is accepted.
const authRequired = -32000

// refused returns the status with which a model's server has refused the key of the agent, if that is what an error is
// about. Agents pass the status on as the error's code.
func refused(e *bridge.RPCError) int {
	switch {
	case e.Code == authRequired:
		return http.StatusUnauthorized
	case stdio.RefusesKey(e.Code, e.Message):
		return e.Code
	}
	return 0
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
		t.Refused = refused(m.Error)
		return session.OutcomeFailed, m.Error.Message, true
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	acpformat.Decode(m.Result, &result)
	o, reason = acpformat.Stopped(result.StopReason)
	return o, reason, false
}
