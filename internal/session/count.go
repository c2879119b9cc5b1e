package session

import "time"

// Count is how many sessions of an agent have a status.
type Count struct {
	Status   State
	Agent    string
	Sessions int64
}

// Unfinished is what waits in all sessions together.
type Unfinished struct {
	Questions  int64 // that are open
	Queued     int64 // prompts
	Processing int64 // prompts
	// Oldest is how long the prompt that came first has waited whose session processes no other prompt and is not in
	// error, and whose queue is not held; 0 if there is none.
	Oldest time.Duration
}
