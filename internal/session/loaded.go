package session

import "time"

// Loaded is the state with which a workflow starts: the session in Postgres, with its pending
// prompts and its run.
type Loaded struct {
	Session
	ErrorCause   ErrorCause     // cause of the state error
	GivenTitle   string         // title given by a person; empty for one from a prompt or the agent
	Waiting      []QueuedPrompt // queued prompts by ordinal; none if the queue is held
	Processing   *Processing    // the prompt that a run has; nil if none
	Head         *BundleRef     // the bundle to restore from; nil if none was ever made
	SandboxID    string         // sandbox of Generation; empty if none is recorded
	SandboxSince time.Time      // when that sandbox was created
	Deadline     time.Time      // when that sandbox expires at the provider; zero if it does not
}

// Processing is a prompt that a run has.
type Processing struct {
	PromptID   string
	Ordinal    int64
	RunID      string
	Generation int64 // generation of the sandbox to which the run was dispatched
	// Dispatch is the number with which the run is given to a worker.
	Dispatch  int64
	OnUnknown OnUnknown
	Part      int64 `json:",omitempty"` // see Run
	// Parked means that the session sleeps, or is about to, until the run's questions are answered
	// (Due is set if they are), or until Until.
	Parked bool      `json:",omitempty"`
	Due    bool      `json:",omitempty"`
	Until  time.Time `json:",omitzero"`
}

// BundleRef identifies a bundle and the location of its files.
type BundleRef struct {
	ID         string
	SnapshotID string
}
