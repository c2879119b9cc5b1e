package activities

import (
	"errors"
	"strings"

	"go.temporal.io/sdk/temporal"
)

// Kinds of the errors of activities: the types that they have at the engine. All but
// NotHandedOver, HandOver and QueueHeld are final: the same call again cannot succeed, so the engine does not retry it and
// the workflow acts on it. An error of any other type may pass and is retried, whatever its
// type is called: the engine names errors without one after their Go type.
const (
	// SandboxLost: the provider says that the sandbox has ended.
	SandboxLost = "SandboxLost"
	// SandboxLimit: the provider ended the sandbox during a turn because it exceeded a limit. The same prompt would
	// exceed it again.
	SandboxLimit = "SandboxLimit"
	// PromptNotDelivered: the attempt ended before the agent got the prompt, and no other
	// attempt had handed it over.
	PromptNotDelivered = "PromptNotDelivered"
	// DeliveryUnknown: the sandbox lives, but its runner lost the run: it is unknown whether the
	// agent got the prompt, or how far it came.
	DeliveryUnknown = "DeliveryUnknown"
	// GenerationSpent: the generation cannot have a sandbox any more, because its
	// name belongs to something that is not ours or its sandbox never came to use.
	// The next generation can.
	GenerationSpent = "GenerationSpent"
	// Refused: the provider or the store will never accept this.
	Refused = "Refused"
	// SessionMissing: Postgres has no row of the session.
	SessionMissing = "SessionMissing"
	// NotHandedOver: the attempt was cancelled before the agent got the prompt, and no other
	// attempt had handed it over. Not final: if the cancellation was not requested, for example
	// because a heartbeat was not answered, Temporal starts another attempt.
	NotHandedOver = "NotHandedOver"
	// HandOver: the worker stops; the engine gives the turn to another.
	HandOver = "HandOver"
	// StaleWorkflow: another run of the session's workflow has opened the session since: this one was reset, or
	// terminated, or continued as new. A workflow that gets it reads the session again and continues from there.
	StaleWorkflow = "StaleWorkflow"
	// QueueHeld: only prompts ask for it, and the queue of the session is held. It may pass.
	QueueHeld = "QueueHeld"
	// Fenced: a newer generation or attempt has taken over, or the session has moved on.
	Fenced = "Fenced"
)

// IsFinal reports whether doing the same again cannot help. Everything else may pass.
func IsFinal(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok {
		return false
	}
	switch app.Type() {
	case SandboxLost, SandboxLimit, PromptNotDelivered, DeliveryUnknown, GenerationSpent, Refused, SessionMissing, Fenced, StaleWorkflow:
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

// maxReason bounds what is kept of an error's words, in bytes.
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
