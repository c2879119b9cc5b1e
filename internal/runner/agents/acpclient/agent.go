package acpclient

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Agent is the part of a bridge that is specific to one agent: the content of its notebook, and the
// interpretation of its agent's lines. The loop calls its methods one at a time. Failed, Finished
// and Ended end the turn with [Bridge.End].
type Agent interface {
	// Ready handles a successful start. The session has its ID.
	Ready(s Started)
	// Repeating reports whether the agent is still repeating the conversation that it has loaded. A
	// prompt waits until then.
	Repeating() bool
	// Repeated handles a line outside a turn, which has already been printed.
	Repeated(s Said)
	// Known returns the recorded end of a run, as the data of a note.
	Known(run string) (json.RawMessage, bool)
	// Begun records the start of a prompt's turn. The prompt has a time.
	Begun(c stdio.Command)
	// Texts returns the texts to send to the agent for the turn's prompt.
	Texts(content string) []string
	// Poll reads the files that the agent writes. It is called before each line of a turn, and at
	// each interval.
	Poll()
	// Updated prints an update of the turn, with the notes that precede and follow it.
	Updated(s Said)
	// Asked records a permission request, and returns the ID of its call and the options. A request
	// without such an ID cannot be shown to a person.
	Asked(params json.RawMessage) (call string, options json.RawMessage)
	// Answered records the decision about a permission request, before the agent receives it.
	Answered(call string, d Decision)
	// Interrupted records that the turn is being aborted.
	Interrupted()
	// MaxSilence returns how long the agent may currently be silent; 0 for no limit.
	MaxSilence() time.Duration
	// RecordTimeout records that the turn timed out. The reason is in Turn.TimedOut.
	RecordTimeout()
	// Failed ends the turn of an agent that failed to start.
	Failed(message string)
	// Finished ends the turn with the response to its prompt.
	Finished(m bridge.Message)
	// Ended ends the turn of a prompt that was not sent to the agent.
	Ended(outcome session.Outcome, reason string)
}

// Decision is the outcome of a permission request.
type Decision int

// The decisions.
const (
	Withdrawn Decision = iota // the turn is being aborted
	Allowed
	Rejected
)
