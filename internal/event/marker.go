package event

// The markers of a stream. They have no position, so a reader cannot resume from one.
const (
	// MarkerCaughtUp follows the event that was the newest when the stream was opened.
	MarkerCaughtUp = "caught_up"
	// MarkerGap replaces events that are no longer kept.
	MarkerGap = "gap"
	// MarkerEnd is the end of the stream of a terminated session.
	MarkerEnd = "end"
)
