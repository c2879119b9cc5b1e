package agent

// Listener is a translator that knows whether the agent has heard what it was told with
// Translation.Input. Telling it and committing the frame that asked for it are two things: where the
// link breaks in between, the agent may have heard nothing, and no frame will ask again.
type Listener interface {
	// Unheard is what the agent was to be told and has not shown to have heard, or nil. Whoever takes
	// a run up writes it to the agent's stdin once more; the agent heeds it once.
	Unheard() []byte
}
