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

// Turn is a turn in progress.
type Turn struct {
	Run         string
	LastLine    time.Time // time of the agent's last line
	Interrupted bool
	TimedOut    error                      // why the turn timed out
	Asked       map[string]json.RawMessage // ids of permission requests, by call
	// Refused is the status with which the model API rejected the agent's key, or 0.
	Refused int

	cancelled time.Time // when the last cancel was sent
	killAt    time.Time
}

// look checks the deadlines: whether to cancel the turn again, and whether the agent has not acted
// on a cancel in time.
func (t *Turn) look() (again, ended bool) {
	again = (t.Interrupted || t.TimedOut != nil) && time.Since(t.cancelled) > cancelInterval
	return again, t.TimedOut != nil && time.Now().After(t.killAt)
}

// authRequired is the error code of an agent that has no key, or whose key is not accepted.
const authRequired = -32000

// refused returns the status with which the model API rejected the agent's key, if that is the
// error. Agents use the status as the error's code.
func refused(e *bridge.RPCError) int {
	switch {
	case e.Code == authRequired:
		return http.StatusUnauthorized
	case stdio.RefusesKey(e.Code, e.Message):
		return e.Code
	}
	return 0
}

// Ended returns how the turn ended, according to the response to its prompt unless the turn was
// aborted or timed out. failed means that the turn had no result, for the given reason.
func (t *Turn) Ended(m bridge.Message) (o session.Outcome, reason string, failed bool) {
	switch {
	case t.TimedOut != nil:
		return session.OutcomeFailed, t.TimedOut.Error(), true
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
