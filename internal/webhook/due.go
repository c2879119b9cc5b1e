package webhook

import "github.com/overwinter-dev/overwinter/internal/lifecycle"

// Due is the data for an attempt at a delivery.
type Due struct {
	Delivery  Delivery
	Endpoint  Endpoint
	Sealed    []byte // the secret
	OldSealed []byte // the previous secret while it also signs; nil for none
	// Event is the event to deliver; nil if it is no longer stored.
	Event *lifecycle.Event
}
