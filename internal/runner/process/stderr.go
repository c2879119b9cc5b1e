package process

import (
	"fmt"
	"time"
)

// The bounds of how much of an agent's stderr is recorded in the journal: a burst, and a rate above
// it.
const (
	stderrBurst = 1 << 20
	stderrRate  = 256 << 10 // bytes per second
	stderrTail  = 4 << 10   // kept for the exit report
)

// stderrMeter decides which lines of stderr become frames.
type stderrMeter struct {
	tail    []byte
	credit  float64
	at      time.Time
	dropped int
}

func newStderrMeter(now time.Time) *stderrMeter {
	return &stderrMeter{credit: stderrBurst, at: now}
}

// line filters a line and returns what to record in the journal.
func (m *stderrMeter) line(line []byte, now time.Time) [][]byte {
	m.tail = append(append(m.tail, line...), '\n')
	if excess := len(m.tail) - stderrTail; excess > 0 {
		m.tail = append(m.tail[:0], m.tail[excess:]...)
	}
	m.credit = min(stderrBurst, m.credit+now.Sub(m.at).Seconds()*stderrRate)
	m.at = now
	if m.credit < float64(len(line)) {
		m.dropped++
		return nil
	}
	m.credit -= float64(len(line)) + 1
	var out [][]byte
	if m.dropped > 0 {
		out = append(out, m.note())
	}
	return append(out, line)
}

// note reports the lines that were dropped since the last note.
func (m *stderrMeter) note() []byte {
	b := fmt.Appendf(nil, "[overwinter-runner: %d lines of stderr left out]", m.dropped)
	m.dropped = 0
	return b
}
