package orchestrator

import "time"

// Patient is o with another bound for every call.
func (o *Orchestrator) Patient(d time.Duration) *Orchestrator {
	patient := *o
	patient.timeout = d
	return &patient
}
