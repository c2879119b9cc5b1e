package run

// Doing says what the attempt that holds a run does with its frames. It is stored before the attempt does it,
// so that the next attempt knows what it was lost in.
type Doing string

// What an attempt does.
const (
	DoingNothing  Doing = ""            // no attempt is attached, or the last one ended by itself
	DoingAttached Doing = "attached"    // it waits for frames, or handles them and none was lost at its position before
	DoingReading  Doing = "reading"     // after a loss: it reads the frames that wait, or stores what they mean
	DoingHandling Doing = "handling"    // after a loss: it translates, masks and encodes frames
	DoingPanicked Doing = "panicked"    // it panicked while it handled frames
	DoingRefused  Doing = "quarantined" // the run is quarantined; no attempt reads frames any more
)

// Losses counts the attempts at a run that were lost, which is that they ended without saying so, at one position:
// the last frame that is committed. Progress begins the count again. Every worker may be killed at any time, so
// a loss says little by itself: the first one at a position counts one point. What speaks against the frames is that
// another attempt is lost while it handles the very frames that waited, which takes milliseconds: that counts four, as
// a panic does. At five points the run is quarantined.
type Losses struct {
	Frame  int64
	Points int
}

// quarantineAt is where a run is quarantined, pointsOf what a loss counts. A loss in DoingAttached counts once.
const quarantineAt = 5

var pointsOf = map[Doing]int{DoingReading: 1, DoingHandling: 4, DoingPanicked: 4}

// After returns the losses after an attempt has ended in what it did, where frame is the newest committed one.
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

// Quarantine reports whether no further worker is to be lost to the run.
func (l Losses) Quarantine() bool { return l.Points >= quarantineAt }
