package orchestrator

import "time"

// Timeout bounds every call.
const Timeout = timeout

// Patient is o with another bound.
func (o *Orchestrator) Patient(d time.Duration) *Orchestrator {
	patient := *o
	patient.timeout = d
	return &patient
}
