package session

import "time"

// Loaded is the state that a workflow starts with: the session in Postgres, with its pending prompts and its run.
type Loaded struct {
	Session
	ErrorCause   ErrorCause     // of the state error
	GivenTitle   string         // by a person; empty for one of a prompt or of the agent
	Waiting      []QueuedPrompt // queued prompts by ordinal; none of a queue that is held
	Processing   *Processing    // the prompt that a run has; nil when none
	Head         *BundleRef     // the bundle to wake from; nil when none was ever made
	SandboxID    string         // of Generation; empty when none is recorded
	SandboxSince time.Time      // when that sandbox's life began
	Deadline     time.Time      // end of that sandbox's life at the provider; zero when there is none
}

// Processing is a prompt in the hands of a run.
type Processing struct {
	PromptID   string
	Ordinal    int64
	RunID      string
	Generation int64 // of the sandbox that the run was dispatched to
	// Dispatch is the number to give the run to a worker with.
	Dispatch  int64
	OnUnknown OnUnknown
	Part      int64 `json:",omitempty"` // see Run
	// Parked: its session sleeps, or is to, until its questions are answered, which they are if Due is set, or until Until.
	Parked bool      `json:",omitempty"`
	Due    bool      `json:",omitempty"`
	Until  time.Time `json:",omitzero"`
}

// BundleRef names a bundle and where its files are.
type BundleRef struct {
	ID         string
	SnapshotID string
}
