package session

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// Resolution is the action of a person on a prompt whose outcome is unknown.
type Resolution string

// The resolutions of a prompt.
const (
	// ResolutionRetry returns the prompt to its place in the queue.
	ResolutionRetry Resolution = "retry"
	// ResolutionResolve sets the outcome of the prompt.
	ResolutionResolve Resolution = "resolve"
	// ResolutionDismiss ends the prompt as cancelled.
	ResolutionDismiss Resolution = "dismiss"
)

// MaxNoteBytes bounds the note of a resolution.
const MaxNoteBytes = 1000

// MaxAttempt bounds the number of an attempt in a request.
const MaxAttempt = 1_000_000

// Resolved is the resolution of a prompt whose outcome was unknown.
type Resolved struct {
	Action Resolution
	Note   string
	At     time.Time
}

// Resolve is a request to resolve a prompt.
type Resolve struct {
	SessionID, PromptID string
	Action              Resolution
	Outcome             PromptStatus // with ResolutionResolve: completed or failed
	Note                string
	// RunID, with ResolutionRetry, is the run of the prompt; empty for any.
	RunID string
	// Attempt, with ResolutionRetry, is the claim whose outcome is unknown; 0 for the latest. It
	// makes the request idempotent even if the prompt has become unknown again.
	Attempt int
}

// Status returns the resulting status of the prompt.
func (r Resolve) Status() PromptStatus {
	switch r.Action {
	case ResolutionRetry:
		return PromptQueued
	case ResolutionDismiss:
		return PromptCancelled
	default:
		return r.Outcome
	}
}

// Reason returns the resulting reason of the prompt.
func (r Resolve) Reason() string {
	switch r.Action {
	case ResolutionDismiss:
		return ReasonDismissed
	case ResolutionResolve:
		return ReasonResolved
	default:
		return ""
	}
}

// JudgeResolve decides whether a prompt can be resolved in this way. already means that it has
// been, and there is nothing to do.
func JudgeResolve(r Resolve, p Prompt, status State, reason string) (already bool, refused *failure.Error) {
	same := p.Resolved != nil && p.Resolved.Action == r.Action
	switch {
	case p.JoinedTo != "":
		return false, failure.Errorf(failure.IllegalState, "prompt %s was joined to %s; retry, resolve or dismiss that prompt, which applies to both", p.ID, p.JoinedTo)
	case (r.RunID != "" && r.RunID != RunOf(p.RunID) || r.Attempt != 0 && r.Attempt != p.Claims) && same:
		return true, nil
	case r.Attempt != 0 && r.Attempt != p.Claims:
		return false, failure.Errorf(failure.NoRun, "the latest attempt of prompt %s is %d, not %d", p.ID, p.Claims, r.Attempt)
	case r.RunID != "" && r.RunID != RunOf(p.RunID):
		return false, failure.Errorf(failure.NoRun, "the latest run of prompt %s is not %s", p.ID, r.RunID)
	case p.Status != PromptUnknown && same && (r.Action == ResolutionRetry || p.Status == r.Status()):
		return true, nil
	case p.Status != PromptUnknown:
		return false, failure.Errorf(failure.NotUnknown, "prompt %s is %s; only one that is unknown can be retried, resolved or dismissed", p.ID, p.Status)
	case r.Action != ResolutionRetry:
		return false, nil
	case status.Final():
		return false, failure.Errorf(failure.Terminated, "the session is terminated; the prompt can be resolved or dismissed")
	case status == Error:
		return false, InError(reason)
	default:
		return false, nil
	}
}
