package opencodeformat

// Failure is why the bridge ended an answer. OpenCode only records that it was aborted.
type Failure struct {
	MessageID string `json:"messageID"`
	Message   string `json:"message"`
}

// FailureList is the content of a file next to the sessions.
type FailureList struct {
	Failures []Failure `json:"failures"`
}
