package event

// The markers of a stream. They have no position: a reader cannot resume from one.
const (
	// MarkerCaughtUp follows the newest event that there was when the stream was opened.
	MarkerCaughtUp = "caught_up"
	// MarkerGap stands for events that are no longer kept.
	MarkerGap = "gap"
	// MarkerEnd is the last of a stream whose session is final.
	MarkerEnd = "end"
)
