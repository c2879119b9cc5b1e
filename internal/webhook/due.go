package webhook

import "github.com/overwinter-dev/overwinter/internal/lifecycle"

// Due is all that an attempt at a delivery needs.
type Due struct {
	Delivery  Delivery
	Endpoint  Endpoint
	Sealed    []byte // the secret
	OldSealed []byte // the one before it, while it signs; nil for none
	// Event is what is delivered; nil if it is not kept any more.
	Event *lifecycle.Event
}
