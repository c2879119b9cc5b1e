// Package breaker is the circuit breaker for sandbox starts: when starts keep failing at a
// provider, further ones wait, and one trial at a time tests whether they succeed again. It has no
// lock and no clock; its state is stored and shared by all workers.
package breaker

import "time"

// The circuit breakers of starts.
const (
	// Threshold is the number of consecutive failed starts that open a breaker, each within Window
	// of the previous one.
	Threshold = 5
	Window    = 10 * time.Minute
	// A breaker stays open for Pause, and twice as long after each failed trial, up to maxPause.
	Pause    = 5 * time.Second
	maxPause = 30 * time.Second
	// Trial is the time after which another trial may begin, because the worker of the first one
	// may be lost.
	Trial = time.Minute
	// Grace is how long other sessions precede the one that failed last, because its own snapshot
	// may be the cause.
	Grace = 5 * time.Second
	// Look is the interval at which waiting starts query the breaker.
	Look = 5 * time.Second
)

// Breaker is the circuit breaker for the sandbox starts of one agent at one provider.
//
//	closed ── Threshold failures in a row ──▶ open ── its pause is over: one start is the trial ──▶ half-open
//	  ▲                                                ▲                                                      │
//	  └──────────── a start succeeds ──────────────────┼────────────── the trial fails: a longer pause ───────┤
//	                                                   └──────────────────────────────────────────────────────┘
//
// It is stored, so that all workers share it. The zero value is closed.
type Breaker struct {
	Provider, Agent string
	Failures        int // in a row
	Trials          int // that have failed since it opened
	FailedAt        time.Time
	FailedBy        string // the start that failed last
	Reason          string // for which it failed
	OpenedAt        time.Time
	RetryAt         time.Time // the next trial may begin
	TrialBy         string    // the start that is the trial; "" for none
	TrialUntil      time.Time
}

// Open reports whether starts wait.
func (b *Breaker) Open() bool { return !b.OpenedAt.IsZero() }

// Try asks whether a start may begin now. If not, it returns when to ask again. A trial that it begins changes b.
func (b *Breaker) Try(start string, now time.Time) (ok bool, until time.Time) {
	if !b.Open() {
		return true, time.Time{}
	}
	due := b.RetryAt
	if b.FailedBy == start {
		due = due.Add(Grace)
	}
	switch {
	case now.Before(due):
		return false, due
	case b.TrialBy != "" && b.TrialBy != start && now.Before(b.TrialUntil):
		return false, earlier(now.Add(Look), b.TrialUntil)
	}
	b.TrialBy, b.TrialUntil = start, now.Add(Trial)
	return true, time.Time{}
}

// Fail counts a failed start. A start that began before the breaker opened and fails afterwards
// changes nothing. It reports whether this failure has opened the breaker.
func (b *Breaker) Fail(start, reason string, now time.Time) (opened bool) {
	trial := b.TrialBy == start && b.Open()
	switch {
	case trial:
		b.Failures++
		b.Trials++
		b.TrialBy, b.TrialUntil = "", time.Time{}
	case b.Open():
		return false
	case now.Sub(b.FailedAt) > Window:
		b.Failures = 1
	default:
		b.Failures++
	}
	b.FailedAt, b.FailedBy, b.Reason = now, start, reason
	if !trial && b.Failures < Threshold {
		return false
	}
	if !trial {
		b.OpenedAt, opened = now, true
	}
	b.RetryAt = now.Add(min(maxPause, Pause<<min(b.Trials, 10)))
	return opened
}

// Release ends a trial whose result does not depend on the provider. It reports whether the start
// was the trial.
func (b *Breaker) Release(start string) bool {
	if !b.Open() || b.TrialBy != start {
		return false
	}
	b.TrialBy, b.TrialUntil = "", time.Time{}
	return true
}

// Wait describes why the start of a session's sandbox waits.
type Wait struct {
	Since, Until time.Time // of the breaker, and when the next trial may begin
	Failures     int
	Reason       string
}

// Waits returns why starts wait while the breaker is open; nil while it is closed.
func (b *Breaker) Waits() *Wait {
	if !b.Open() {
		return nil
	}
	return &Wait{Since: b.OpenedAt, Until: b.RetryAt, Failures: b.Failures, Reason: b.Reason}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
