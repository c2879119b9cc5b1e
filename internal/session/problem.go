package session

// Codes of the error events that tell what a command came to that could not be done.
const (
	ProblemSyncFailed   = "sync_failed"   // the checkpoint was not saved; the session goes on
	ProblemRevertFailed = "revert_failed" // the agent was not taken back; everything is as it was
)
