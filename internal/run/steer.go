package run

// SteerTopic is the topic of notifications about prompts that wait for the running turn of a session.
func SteerTopic(sessionID string) string { return sessionID + "/steer" }

// SteerTake is a request of the attempt at a run for the prompts that its agent is to get in the running turn.
type SteerTake struct {
	RunID string
	Token string
	Part  int64 // of the run
	// More: the next prompt that waits for the turn is taken, too.
	More bool
}

// SteerTaken says that an agent has taken prompts in the running turn.
type SteerTaken struct {
	RunID     string
	Token     string
	Part      int64 // of the run
	PromptIDs []string
}
