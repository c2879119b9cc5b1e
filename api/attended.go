package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// maxRecorded bounds the prompts of a session that wait to be recorded: one signal names them all.
	maxRecorded = 100
	// recordsAtOnce bounds the records under way. They must not use up the places of signals that something waits for.
	recordsAtOnce = 8
)

// attendedPrompts are prompts of sessions that had an attendant when they came. The attendant claims such a prompt at once, so
// that its workflow has nothing to do with it, and would only compete with the agent for the processor. So the workflow is
// signalled later: for a prompt that was not claimed in time, by itself, as for any other; for all others of a session
// together, so that its history has them.
//
// A prompt whose api is lost before it has looked is signalled by the relay of a worker, like one whose signal was lost.
//
//	add ── after claimWait: claimed? ── yes ──▶ after recordAfter: one signal for all of the session
//	                        └─ no, and no run is in progress ──▶ a signal for the prompt
type attendedPrompts struct {
	store  claimStore
	signal func(ctx context.Context, sessionID string, p session.QueuedPrompt)
	record func(ctx context.Context, sessionID string, prompts []session.QueuedPrompt) error
	logger *slog.Logger

	claimWait   time.Duration // how long a prompt may wait for its attendant
	recordAfter time.Duration // how long a session's first prompt waits for others to be recorded with

	mu       sync.Mutex
	sessions map[string]*attendedSession
	looking  bool // a loop runs
	stopped  bool
	stop     chan struct{} // closed by close
	sending  int           // records under way
	running  sync.WaitGroup
}

// claimStore knows which prompts were claimed.
type claimStore interface {
	// PromptsUnclaimed returns those of some prompts that wait in sessions in which no run is in progress.
	PromptsUnclaimed(ctx context.Context, asked []backlog.Unclaimed) ([]backlog.Unclaimed, error)
}

// attendedSession has the prompts of one session.
type attendedSession struct {
	prompts []attendedPrompt // in the order in which they came
	claimed int              // that many were claimed, or wait for a turn to end
	due     time.Time        // of the next record
	sending bool             // a record is under way
}

type attendedPrompt struct {
	session.QueuedPrompt
	at time.Time
}

// newAttendedPrompts completes one of which the fields before the mutex are given.
func newAttendedPrompts(a *attendedPrompts) *attendedPrompts {
	a.sessions, a.stop = map[string]*attendedSession{}, make(chan struct{})
	return a
}

// add takes in a prompt that was just stored.
func (a *attendedPrompts) add(ctx context.Context, sessionID string, p session.QueuedPrompt) {
	if !a.take(sessionID, p) {
		a.signal(ctx, sessionID, p)
	}
}

func (a *attendedPrompts) take(sessionID string, p session.QueuedPrompt) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[sessionID]
	if a.stopped || s != nil && len(s.prompts) >= maxRecorded {
		return false
	}
	now := time.Now()
	if s == nil {
		s = &attendedSession{due: now.Add(a.recordAfter)}
		a.sessions[sessionID] = s
	}
	s.prompts = append(s.prompts, attendedPrompt{p, now})
	if !a.looking {
		a.looking = true
		a.running.Go(a.run)
	}
	return true
}

// close signals for whatever waits, and returns when all signals have ended.
func (a *attendedPrompts) close() {
	a.mu.Lock()
	if !a.stopped {
		a.stopped = true
		close(a.stop)
	}
	a.mu.Unlock()
	a.running.Wait()
}

// run looks as long as there are prompts.
func (a *attendedPrompts) run() {
	ctx := context.Background()
	ticker := time.NewTicker(max(a.claimWait/2, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.check(ctx, a.unchecked(time.Now().Add(-a.claimWait)))
			if a.recordDue(ctx, time.Now()) == 0 {
				return
			}
		case <-a.stop:
			now := time.Now()
			a.check(ctx, a.unchecked(now))
			a.recordDue(ctx, now.Add(a.recordAfter))
			return
		}
	}
}

// unchecked returns the prompts that came until a time and of which it is not known whether they were claimed.
func (a *attendedPrompts) unchecked(until time.Time) []backlog.Unclaimed {
	a.mu.Lock()
	defer a.mu.Unlock()
	var asked []backlog.Unclaimed
	for id, s := range a.sessions {
		for _, p := range s.prompts[s.claimed:] {
			if !p.at.After(until) {
				asked = append(asked, backlog.Unclaimed{SessionID: id, PromptID: p.ID, Ordinal: p.Ordinal})
			}
		}
	}
	return asked
}

// check signals for those of some prompts that their attendant should have claimed. It does so for all of them if Postgres does
// not answer.
func (a *attendedPrompts) check(ctx context.Context, asked []backlog.Unclaimed) {
	if len(asked) == 0 {
		return
	}
	unclaimed, err := a.store.PromptsUnclaimed(ctx, asked)
	if err != nil {
		a.logger.WarnContext(ctx, "could not check whether attended prompts were claimed; signaling their workflows", slog.Any("error", err))
		unclaimed = asked
	}
	for _, p := range a.checked(asked, unclaimed) {
		a.running.Go(func() { a.signal(ctx, p.SessionID, session.QueuedPrompt{ID: p.PromptID, Ordinal: p.Ordinal}) })
	}
}

// checked removes the prompts that were not claimed, and returns them.
func (a *attendedPrompts) checked(asked, unclaimed []backlog.Unclaimed) []backlog.Unclaimed {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone := make(map[backlog.Unclaimed]bool, len(unclaimed))
	for _, p := range unclaimed {
		alone[p] = true
	}
	for _, p := range asked { // of each session in order, and only by this loop
		s := a.sessions[p.SessionID]
		if alone[p] {
			s.prompts = append(s.prompts[:s.claimed:s.claimed], s.prompts[s.claimed+1:]...)
			continue
		}
		s.claimed++
	}
	return unclaimed
}

// recordDue has the workflows of sessions that are due record their prompts, and returns how many sessions have some left.
func (a *attendedPrompts) recordDue(ctx context.Context, now time.Time) (left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range a.sessions {
		switch {
		case len(s.prompts) == 0:
			delete(a.sessions, id)
		case s.claimed > 0 && !s.sending && !now.Before(s.due) && a.sending < recordsAtOnce:
			s.sending = true
			a.sending++
			named := make([]session.QueuedPrompt, s.claimed)
			for i := range named {
				named[i] = s.prompts[i].QueuedPrompt
			}
			a.running.Go(func() { a.recorded(ctx, id, len(named), a.record(ctx, id, named)) })
		}
	}
	a.looking = len(a.sessions) > 0 && !a.stopped
	return len(a.sessions)
}

// recorded takes in that a record of a session's first n prompts has ended. One that has failed is repeated with the next, as
// far as there is room.
func (a *attendedPrompts) recorded(ctx context.Context, sessionID string, n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[sessionID]
	s.sending = false
	a.sending--
	s.due = time.Now().Add(a.recordAfter)
	if err != nil {
		a.logger.DebugContext(ctx, "could not record attended prompts", slog.String("session_id", sessionID), slog.Any("error", err))
		if n < maxRecorded/2 {
			return
		}
	}
	s.prompts, s.claimed = s.prompts[n:], s.claimed-n
}
