package run

// Doing is the current step of an attempt at a run. It is stored before the step begins, so that
// the next attempt knows in which step this one was lost.
type Doing string

// The steps of an attempt.
const (
	DoingNothing  Doing = ""            // no attempt is attached, or the last one ended regularly
	DoingAttached Doing = "attached"    // waits for frames or handles them, and no attempt was lost at this position before
	DoingReading  Doing = "reading"     // after a loss: reads the waiting frames, or stores their events
	DoingHandling Doing = "handling"    // after a loss: translates, masks and encodes frames
	DoingPanicked Doing = "panicked"    // panicked while handling frames
	DoingRefused  Doing = "quarantined" // the run is quarantined; no attempt reads frames any more
)

// Losses counts the lost attempts at a run, which ended without recording it, at one position: the
// last committed frame. Progress resets the count. Any worker may be killed at any time, so the
// first loss at a position counts one point. A loss while the waiting frames are handled, which
// takes milliseconds, makes those frames suspect: it counts four points, like a panic. At five
// points the run is quarantined.
type Losses struct {
	Frame  int64
	Points int
}

// quarantineAt is the number of points at which a run is quarantined, pointsOf the points of a
// loss. A loss in DoingAttached counts one.
const quarantineAt = 5

var pointsOf = map[Doing]int{DoingReading: 1, DoingHandling: 4, DoingPanicked: 4}

// After returns the losses including an attempt that was lost in a step; frame is the newest
// committed frame.
func (l Losses) After(doing Doing, frame int64) Losses {
	if l.Frame != frame || l.Points == 0 {
		l = Losses{Frame: frame}
		if doing == DoingAttached {
			l.Points = 1
		}
	}
	l.Points = min(l.Points+pointsOf[doing], quarantineAt)
	return l
}

// Quarantine reports whether the run must not get another worker.
func (l Losses) Quarantine() bool { return l.Points >= quarantineAt }
