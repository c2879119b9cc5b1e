package activities

import (
	"errors"
	"strings"

	"go.temporal.io/sdk/temporal"
)

// Kinds of the errors of activities: their types in Temporal. All but NotHandedOver, HandOver and
// QueueHeld are final: a retry cannot succeed, so Temporal does not retry and the workflow acts on
// the error. An error of any other type may be transient and is retried, whatever its type is
// called: Temporal names errors without a type after their Go type.
const (
	// SandboxLost: the provider reports that the sandbox has ended.
	SandboxLost = "SandboxLost"
	// SandboxLimit: the provider ended the sandbox during a turn because it exceeded a limit. The same prompt would
	// exceed it again.
	SandboxLimit = "SandboxLimit"
	// PromptNotDelivered: the attempt ended before the agent got the prompt, and no other attempt
	// had delivered it.
	PromptNotDelivered = "PromptNotDelivered"
	// DeliveryUnknown: the sandbox is alive, but its runner lost the run. It is unknown whether the
	// agent got the prompt, and how much of it was done.
	DeliveryUnknown = "DeliveryUnknown"
	// GenerationUnusable: the generation cannot have a sandbox any more, because its name belongs to a
	// foreign sandbox or its sandbox was ended before use. The next generation can.
	GenerationUnusable = "GenerationSpent"
	// Refused: the provider or the store will never accept this.
	Refused = "Refused"
	// SessionMissing: Postgres has no row of the session.
	SessionMissing = "SessionMissing"
	// NotHandedOver: the attempt was cancelled before the agent got the prompt, and no other
	// attempt had delivered it. Not final: if the cancellation was not requested, for example
	// because a heartbeat was not answered, Temporal starts another attempt.
	NotHandedOver = "NotHandedOver"
	// HandOver: the worker stops; Temporal gives the turn to another one.
	HandOver = "HandOver"
	// StaleWorkflow: another run of the session's workflow has opened the session since, because
	// this run was reset, terminated or continued as new. A workflow that gets this error reads the
	// session again and continues from there.
	StaleWorkflow = "StaleWorkflow"
	// QueueHeld: only prompts require this start, and the queue of the session is held. It is not
	// final.
	QueueHeld = "QueueHeld"
	// GaveWay: the worker needs the place of a turn that waits for its run. The attempt has not attached
	// to the run.
	GaveWay = "GaveWay"
	// Fenced: a newer generation or attempt has taken over, or the session's state has changed.
	Fenced = "Fenced"
)

// IsFinal reports whether a retry cannot succeed. All other errors may be transient.
func IsFinal(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok {
		return false
	}
	switch app.Type() {
	case SandboxLost, SandboxLimit, PromptNotDelivered, DeliveryUnknown, GenerationUnusable, Refused, SessionMissing, Fenced, StaleWorkflow, GaveWay:
		return true
	}
	return app.NonRetryable()
}

func final(kind string, err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), kind, err)
}

// TypeOf returns the type of the application error in err's chain, or "".
func TypeOf(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Type()
	}
	return ""
}

// maxReason bounds the stored message of an error, in bytes.
const maxReason = 2000

// ReasonOf returns the message of an error for people, without Temporal's wrapping.
func ReasonOf(err error) string {
	reason := err.Error()
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		reason = app.Message()
	} else if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		reason = timeout.Error()
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return reason
}
