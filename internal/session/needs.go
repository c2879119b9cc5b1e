package session

import "github.com/overwinter-dev/overwinter/internal/failure"

// Needs are the secrets that agents need. They decide whether a prompt is stored.
type Needs struct {
	// Names are the names of the secrets that any agent needs.
	Names []string
	// Met decides for the session's agent, and for the names among Names under which a secret is stored.
	Met func(agentName string, present []string) bool
}

// ErrUnmet means that a prompt was not stored because Needs are not met.
var ErrUnmet = failure.Errorf(failure.SecretMissing, "the agent may lack a secret that it needs")
