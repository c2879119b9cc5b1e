package opencodeformat

// Failure is the reason why the bridge aborted an answer. OpenCode records only that the answer was
// aborted.
type Failure struct {
	MessageID string `json:"messageID"`
	Message   string `json:"message"`
}

// FailureList is the content of a file next to the sessions.
type FailureList struct {
	Failures []Failure `json:"failures"`
}
