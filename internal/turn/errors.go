package turn

import (
	"errors"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Kind is the kind of a final error: every later attempt would get it too.
type Kind int

const (
	// Refused means that the store, the provider or the agent's adapter will never accept the
	// request.
	Refused Kind = iota + 1
	// Fenced means that a newer generation or attempt has taken over, or that the session's state
	// has changed.
	Fenced
	// SessionMissing means that the session has no row.
	SessionMissing
	// StaleWorkflow means that another run of the session's workflow has opened the session since.
	StaleWorkflow
	// DeliveryUnknown means that the sandbox is alive, but its runner lost the run.
	DeliveryUnknown
)

// Error is final: a retry cannot succeed. All other errors may be transient.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// IsFinal reports whether there is an Error in err's tree.
func IsFinal(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// TakenOver reports whether an attempt ended because a newer one has the run.
func TakenOver(err error) bool {
	return errors.Is(err, eventlog.ErrFenced) || errors.Is(err, runner.ErrDisplaced) || isStale(err)
}

func final(kind Kind, err error) error { return &Error{Kind: kind, Err: err} }

// Stored converts an error of the store into a final [Error] if a retry would be refused too, and
// returns a transient one unchanged.
func Stored(err error) error {
	switch failure.CodeOf(err) {
	case "":
		return nil
	case failure.IllegalState:
		return final(Fenced, err)
	case failure.Internal, failure.Unavailable:
		return err
	case failure.NoSession:
		return final(SessionMissing, err)
	case failure.StaleWorkflow:
		return final(StaleWorkflow, err)
	}
	return final(Refused, err)
}

// kept classifies the errors of storing changes of the workspace. Illegal state does not indicate a
// newer attempt; eventlog.ErrFenced does.
func kept(err error) error {
	if failure.CodeOf(err) == failure.IllegalState {
		return err
	}
	return Stored(err)
}
