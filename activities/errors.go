package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"
)

// Types of the errors of activities. But for HandOver they are final, since to do
// the same again cannot help, and workflows act on them. Everything else is
// retried by the engine.
const (
	// SandboxLost: the provider says that the sandbox has ended.
	SandboxLost = "SandboxLost"
	// PromptNotDelivered: the sandbox was lost before the agent got the prompt.
	PromptNotDelivered = "PromptNotDelivered"
	// DeliveryUnknown: the sandbox lives, but its runner lost the run: whether
	// the agent got the prompt, or how far it came, cannot be told.
	DeliveryUnknown = "DeliveryUnknown"
	// GenerationSpent: the generation cannot have a sandbox any more, because its
	// name belongs to something that is not ours or its sandbox never came to use.
	// The next generation can.
	GenerationSpent = "GenerationSpent"
	// Refused: the provider or the store will never accept this.
	Refused = "Refused"
	// HandOver: the worker stops; the engine gives the turn to another.
	HandOver = "HandOver"
	// Fenced: a newer generation or attempt has taken over.
	Fenced = "Fenced"
)

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

// ReasonOf is what went wrong in words for people, without the engine's wrapping.
func ReasonOf(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		return timeout.Error()
	}
	return err.Error()
}
