package agent

// Listener is a translator that knows whether the agent has received Translation.Input. Sending the
// input and committing the frame that requested it are two steps: if the link breaks in between,
// the agent may not have received the input, and no later frame requests it again.
type Listener interface {
	// Unacknowledged returns the input that was sent to the agent and is not yet acknowledged, or
	// nil. An attempt that resumes a run writes it to the agent's stdin again; the agent acts on it
	// once.
	Unacknowledged() []byte
}
