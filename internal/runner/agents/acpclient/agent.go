package acpclient

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Agent is what one agent's bridge adds to the loop: what its notebook records, and what its agent's
// lines mean. The loop calls its methods one after the other. Failed, Finished and Ended end the turn
// with [Bridge.End].
type Agent interface {
	// Ready acts on a start that succeeded: the session has its ID.
	Ready(s Started)
	// Repeating reports whether the agent still repeats the conversation that it has loaded. A prompt
	// waits until it has.
	Repeating() bool
	// Repeated reads a line outside a turn, which has been printed.
	Repeated(s Said)
	// Known returns the end of a run that the notebook knows, as the data of a note.
	Known(run string) (json.RawMessage, bool)
	// Begun records that the turn of a prompt begins. The prompt has a time.
	Begun(c stdio.Command)
	// Texts returns the texts that the agent gets for the prompt of the turn that has begun.
	Texts(content string) []string
	// Poll reads what the agent writes to files. It is called before each line of a turn, and at each
	// interval.
	Poll()
	// Updated prints an update of the turn, with what is recorded before and after it.
	Updated(s Said)
	// Asked records a request for permission, and returns the ID of the call that it is for and the
	// options. A request without such an ID cannot be put to a person.
	Asked(params json.RawMessage) (call string, options json.RawMessage)
	// Answered records what became of a request for permission, before the agent gets the answer.
	Answered(call string, d Decision)
	// Interrupted records that the turn is aborted.
	Interrupted()
	// MaxSilence returns how long the agent may be silent at present; 0 is without a limit.
	MaxSilence() time.Duration
	// GivenUp records that the turn is given up for its silence, for the reason in Turn.GaveUp.
	GivenUp()
	// Failed ends the turn of an agent that has not started.
	Failed(message string)
	// Finished ends the turn as the response to its prompt says.
	Finished(m bridge.Message)
	// Ended ends the turn of a prompt that the agent has not had.
	Ended(outcome session.Outcome, reason string)
}

// Decision is what became of a request for permission.
type Decision int

// The decisions.
const (
	Withdrawn Decision = iota // the turn is aborted
	Allowed
	Rejected
)
