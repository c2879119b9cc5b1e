package run

// SteerTopic is the topic of notifications about prompts that wait for the running turn of a session.
func SteerTopic(sessionID string) string { return sessionID + "/steer" }

// SteerTake is the request of an attempt at a run for the prompts that its agent gets during the
// running turn.
type SteerTake struct {
	RunID string
	Token string
	Part  int64 // of the run
	// More also takes the next prompt that waits for the turn.
	More bool
}

// SteerTaken reports that an agent has accepted prompts during the running turn.
type SteerTaken struct {
	RunID     string
	Token     string
	Part      int64 // of the run
	PromptIDs []string
}
