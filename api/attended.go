package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// maxRecorded bounds the prompts of a session that wait to be recorded, since one signal lists
	// all of them.
	maxRecorded = 100
	// recordsAtOnce bounds the concurrent records, which must not use up the slots of urgent
	// signals.
	recordsAtOnce = 8
	// recordAllTimeout bounds the records of a server that stops.
	recordAllTimeout = 3 * time.Second
)

// attendedPrompts holds prompts of sessions that had an attendant when the prompt arrived. The
// attendant claims such a prompt at once, so the workflow is not needed, and would only compete
// with the agent for the CPU. Therefore the workflow is signalled later: separately for each prompt
// that was not claimed in time, and once for all others of a session, to record them in its
// history.
//
// If an api is lost before it has checked a prompt, the relay of a worker signals the prompt, as
// after a lost signal.
//
//	add ── after claimWait: claimed? ── yes ──▶ after recordAfter, or maxRecorded/2: one signal for all of the session
//	                        └─ no, and no run is in progress ──▶ a signal for the prompt
type attendedPrompts struct {
	store  claimStore
	signal func(ctx context.Context, sessionID string, p session.QueuedPrompt)
	record func(ctx context.Context, sessionID string, prompts []session.QueuedPrompt) error
	logger *slog.Logger

	claimWait   time.Duration // how long a prompt may wait for its attendant
	recordAfter time.Duration // how long a session's first prompt waits so that others can be recorded together with it

	mu       sync.Mutex
	sessions map[string]*attendedSession
	looking  bool // a loop runs
	stopped  bool
	stop     chan struct{} // closed by close
	sending  int           // records in progress
	running  sync.WaitGroup
}

// claimStore reports which prompts were claimed.
type claimStore interface {
	// PromptsUnclaimed returns the given prompts that are waiting in sessions without a running
	// turn.
	PromptsUnclaimed(ctx context.Context, asked []backlog.Unclaimed) ([]backlog.Unclaimed, error)
}

// attendedSession has the prompts of one session.
type attendedSession struct {
	prompts []attendedPrompt // in order of arrival
	claimed int              // the number that were claimed, or wait for a turn to end
	due     time.Time        // time of the next record
	sending bool             // a record is in progress
}

// checked returns the prompts that were claimed, or wait for a turn to end.
func (s *attendedSession) checked() []session.QueuedPrompt {
	out := make([]session.QueuedPrompt, s.claimed)
	for i := range out {
		out[i] = s.prompts[i].QueuedPrompt
	}
	return out
}

type attendedPrompt struct {
	session.QueuedPrompt
	at time.Time
}

// newAttendedPrompts initializes a value whose fields above the mutex are set.
func newAttendedPrompts(a *attendedPrompts) *attendedPrompts {
	a.sessions, a.stop = map[string]*attendedSession{}, make(chan struct{})
	return a
}

// add adds a newly stored prompt.
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
	if len(s.prompts) >= maxRecorded/2 { // before there is no more room
		s.due = now
	}
	if !a.looking {
		a.looking = true
		a.running.Go(a.run)
	}
	return true
}

// close signals for all waiting prompts, and returns when all signals have ended.
func (a *attendedPrompts) close() {
	a.mu.Lock()
	if !a.stopped {
		a.stopped = true
		close(a.stop)
	}
	a.mu.Unlock()
	a.running.Wait()
}

// run checks prompts until none is left.
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
			a.check(ctx, a.unchecked(time.Now()))
			a.recordAll(ctx)
			return
		}
	}
}

// unchecked returns the prompts that arrived until a time and were not checked yet.
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

// check signals for the prompts that their attendant should have claimed. If Postgres does not
// answer, it signals for all given prompts.
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
	for _, p := range asked { // the prompts of each session are in order, and only this loop removes them
		s := a.sessions[p.SessionID]
		if alone[p] {
			s.prompts = append(s.prompts[:s.claimed:s.claimed], s.prompts[s.claimed+1:]...)
			continue
		}
		s.claimed++
	}
	return unclaimed
}

// recordDue signals the workflows of due sessions to record their prompts, and returns the number
// of sessions that have some left.
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
			named := s.checked()
			a.running.Go(func() { a.recorded(ctx, id, len(named), a.record(ctx, id, named)) })
		}
	}
	a.looking = len(a.sessions) > 0 && !a.stopped
	return len(a.sessions)
}

// recordAll records the prompts of all sessions that have none in progress. What cannot be recorded in
// time is left out: it may only be in the results of the attendances.
func (a *attendedPrompts) recordAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordAllTimeout)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(recordsAtOnce)
	for id, prompts := range a.unrecorded() {
		all.Go(func() error { return a.record(ctx, id, prompts) })
	}
	if err := all.Wait(); err != nil {
		a.logger.DebugContext(ctx, "could not record all attended prompts", slog.Any("error", err))
	}
}

// unrecorded returns the prompts that recordAll records, by session.
func (a *attendedPrompts) unrecorded() map[string][]session.QueuedPrompt {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string][]session.QueuedPrompt{}
	for id, s := range a.sessions {
		if s.claimed > 0 && !s.sending {
			out[id] = s.checked()
		}
	}
	return out
}

// recorded handles the end of a record of a session's first n prompts. A failed record is repeated
// with the next one, if there is room.
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
	if err == nil && len(s.prompts) >= maxRecorded/2 {
		s.due = time.Now()
	}
}
