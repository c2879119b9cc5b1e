package session

import (
	"fmt"
	"slices"
)

// State is a session's state. The zero value is not a state.
type State string

// The states of a session. Only terminated is final.
const (
	// Initializing: the row exists; there has been no sandbox yet. A lazy session waits in this
	// state.
	Initializing State = "initializing"
	// Running: the session has a sandbox and runs prompts.
	Running State = "running"
	// Hibernating: the agent is being stopped and a snapshot taken.
	Hibernating State = "hibernating"
	// Hibernated: no sandbox; the newest bundle contains files and memory.
	Hibernated State = "hibernated"
	// Restoring: a sandbox is being created from the newest bundle.
	Restoring State = "restoring"
	// Terminated: the session and its sandbox have ended.
	Terminated State = "terminated"
	// Error: an operation failed permanently; left by recover or stop.
	Error State = "error"
)

// States lists every state in the usual order.
var States = []State{Initializing, Running, Hibernating, Hibernated, Restoring, Terminated, Error}

// Final reports whether a session cannot leave this state.
func (s State) Final() bool { return s == Terminated }

// HasSandbox reports whether a session in this state may own a sandbox.
func (s State) HasSandbox() bool {
	return s == Initializing || s == Running || s == Hibernating || s == Restoring || s == Error
}

// Event moves a session from one state to the next.
type Event string

// The events of a session.
const (
	// EventReady: the sandbox is running and its runner responds.
	EventReady Event = "ready"
	// EventHibernate: requested, idle, lost, or at the end of its lifetime, according to the
	// reason.
	EventHibernate Event = "hibernate"
	// EventSaved: a bundle is committed and the sandbox has ended.
	EventSaved Event = "saved"
	// EventWake: a command or a prompt restores the session.
	EventWake Event = "wake"
	// EventFail: the retries are exhausted; the reason names the failed step.
	EventFail Event = "fail"
	// EventRecover: a person requests a retry after an error.
	EventRecover Event = "recover"
	// EventStop: the session and its sandbox have ended.
	EventStop Event = "stop"
	// EventAbandoned: the sandbox ended and there is nothing to restore from.
	EventAbandoned Event = "forsaken"
)

// Events lists every event.
var Events = []Event{EventReady, EventHibernate, EventSaved, EventWake, EventFail, EventRecover, EventStop, EventAbandoned}

// transitions is the complete state machine of a session.
var transitions = map[State]map[Event]State{
	Initializing: {EventReady: Running, EventFail: Error, EventStop: Terminated},
	Running:      {EventHibernate: Hibernating, EventFail: Error, EventStop: Terminated},
	Hibernating:  {EventSaved: Hibernated, EventFail: Error, EventStop: Terminated, EventAbandoned: Terminated},
	Hibernated:   {EventWake: Restoring, EventStop: Terminated},
	Restoring:    {EventReady: Running, EventFail: Error, EventStop: Terminated},
	Error:        {EventRecover: Restoring, EventStop: Terminated},
	Terminated:   {},
}

// Next returns the state to which event leads from state. If the table has no such transition it
// returns an *IllegalTransitionError and the unchanged state.
func Next(state State, event Event) (State, error) {
	if to, ok := transitions[state][event]; ok {
		return to, nil
	}
	return state, &IllegalTransitionError{From: state, Event: event}
}

// Legal reports whether a transition of the table leads from one state to another.
func Legal(from, to State) bool {
	for _, t := range transitions[from] {
		if t == to {
			return true
		}
	}
	return false
}

// ParseState returns the state with that name.
func ParseState(name string) (State, error) {
	if s := State(name); slices.Contains(States, s) {
		return s, nil
	}
	return "", fmt.Errorf("%q is not a session status", name)
}

// IllegalTransitionError reports a transition that is not in the table.
type IllegalTransitionError struct {
	From  State
	Event Event
}

func (e *IllegalTransitionError) Error() string {
	return fmt.Sprintf("no transition from %s on %s", e.From, e.Event)
}
