package session

import (
	"fmt"
	"slices"
)

// State is a session's state. The zero value is not a state.
type State string

// The states of a session. Terminated is the only final one: nothing leaves it.
const (
	// Initializing: the row exists; no sandbox has been made yet. A lazy session waits here.
	Initializing State = "initializing"
	// Running: a sandbox is up and prompts are served.
	Running State = "running"
	// Hibernating: the agent is being stopped and the sandbox snapshotted.
	Hibernating State = "hibernating"
	// Hibernated: no sandbox; the newest bundle holds files and memory.
	Hibernated State = "hibernated"
	// Restoring: a sandbox is being made from the newest bundle.
	Restoring State = "restoring"
	// Terminated: over, the sandbox is gone.
	Terminated State = "terminated"
	// Error: something failed for good; left by recover or stop.
	Error State = "error"
)

// States lists every state in the order of a session's life.
var States = []State{Initializing, Running, Hibernating, Hibernated, Restoring, Terminated, Error}

// Final reports whether nothing can happen to a session in this state any more.
func (s State) Final() bool { return s == Terminated }

// HasSandbox reports whether a session in this state may own a sandbox.
func (s State) HasSandbox() bool {
	return s == Initializing || s == Running || s == Hibernating || s == Restoring || s == Error
}

// Event moves a session from one state to the next.
type Event string

// The events of a session's life.
const (
	// EventReady: the sandbox is up and its runner answers.
	EventReady Event = "ready"
	// EventHibernate: requested, idle, lost, or out of lifetime: the reason says which.
	EventHibernate Event = "hibernate"
	// EventSaved: a bundle to wake from is committed and the sandbox is gone.
	EventSaved Event = "saved"
	// EventWake: a command or a prompt restores the session.
	EventWake Event = "wake"
	// EventFail: the retries are exhausted; the reason names the failed step.
	EventFail Event = "fail"
	// EventRecover: a person asks to try again after an error.
	EventRecover Event = "recover"
	// EventStop: the session ends and its sandbox is gone.
	EventStop Event = "stop"
	// EventAbandoned: the sandbox ended and nothing is left to restore from.
	EventAbandoned Event = "forsaken"
)

// Events lists every event.
var Events = []Event{EventReady, EventHibernate, EventSaved, EventWake, EventFail, EventRecover, EventStop, EventAbandoned}

// transitions is the whole life of a session; nothing else decides it.
var transitions = map[State]map[Event]State{
	Initializing: {EventReady: Running, EventFail: Error, EventStop: Terminated},
	Running:      {EventHibernate: Hibernating, EventFail: Error, EventStop: Terminated},
	Hibernating:  {EventSaved: Hibernated, EventFail: Error, EventStop: Terminated, EventAbandoned: Terminated},
	Hibernated:   {EventWake: Restoring, EventStop: Terminated},
	Restoring:    {EventReady: Running, EventFail: Error, EventStop: Terminated},
	Error:        {EventRecover: Restoring, EventStop: Terminated},
	Terminated:   {},
}

// Next returns the state that event leads to from state. Where the table has no
// such step it returns an *IllegalTransitionError and the state unchanged.
func Next(state State, event Event) (State, error) {
	if to, ok := transitions[state][event]; ok {
		return to, nil
	}
	return state, &IllegalTransitionError{From: state, Event: event}
}

// Legal reports whether one step of the table leads from one state to another.
func Legal(from, to State) bool {
	for _, t := range transitions[from] {
		if t == to {
			return true
		}
	}
	return false
}

// ParseState returns the state of that name.
func ParseState(name string) (State, error) {
	if s := State(name); slices.Contains(States, s) {
		return s, nil
	}
	return "", fmt.Errorf("%q is not a session status", name)
}

// IllegalTransitionError says that the table has no such step.
type IllegalTransitionError struct {
	From  State
	Event Event
}

func (e *IllegalTransitionError) Error() string {
	return fmt.Sprintf("no transition from %s on %s", e.From, e.Event)
}
