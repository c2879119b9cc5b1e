package server

import (
	"cmp"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// maxPause bounds how long the agent waits for a worker that takes nothing, by default. A worker
// that has stopped, or whose database is unavailable, must not keep the agent from working. The
// agent then continues until the worker takes frames again.
const maxPause = 20 * time.Second

// pace has the limit by which the agent may be ahead of a link's worker. Server.mu guards it.
type pace struct {
	window int64     // frames that the agent may be ahead; 0 for no limit
	next   int64     // first frame that the worker has not handled
	since  time.Time // when the agent began to wait; zero if it has not waited since the worker last took frames
	off    bool      // the worker has taken nothing for maxPause
	ended  bool      // the turn has ended, or was interrupted
}

// ahead returns how many frames the agent is ahead of the window; 0 or less if it may print.
func (p *pace) ahead(frames int64) int64 {
	if p.window == 0 || p.off || p.ended {
		return 0
	}
	return frames - p.next - p.window + 1
}

// pace waits before a line of the agent is read, until the worker of the open run has taken enough
// of the earlier lines. Unread output fills the agent's pipe, so that the agent blocks in a write.
// Without this, a fast agent would wake runner and worker for every line, on a machine that may be
// overloaded. Without a link, pace does not wait.
func (s *Server) pace(ending <-chan struct{}) {
	var timer *time.Timer
	for {
		left, changed := s.pause()
		if changed == nil {
			return
		}
		if timer == nil {
			timer = time.NewTimer(left)
			defer timer.Stop()
		} else {
			timer.Reset(left)
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ending:
			return
		}
	}
}

// pause returns how long the agent may have to wait, and a channel that is closed when that may
// have changed; nil if the agent may print.
func (s *Server) pause() (left time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, j := s.link, s.open
	if l == nil || j == nil || l.run != j.Run() || l.pace.ahead(j.Status().Frames) <= 0 {
		return 0, nil
	}
	if l.pace.since.IsZero() {
		l.pace.since = time.Now()
	}
	if left = cmp.Or(s.cfg.MaxPause, maxPause) - time.Since(l.pace.since); left <= 0 {
		l.pace.off = true
		return 0, nil
	}
	if s.paced == nil {
		s.paced = make(chan struct{})
	}
	return left, s.paced
}

// repace makes a waiting agent check its window again. It must be called with mu held.
func (s *Server) repace() {
	if s.paced != nil {
		close(s.paced)
		s.paced = nil
	}
}

// taken moves the window of a link.
func (s *Server) taken(l *link, m *runner.Taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.pace.window == 0 || m.Window <= 0 || m.Next < l.pace.next {
		return
	}
	l.pace = pace{window: m.Window, next: m.Next, ended: l.pace.ended}
	s.repace()
}

// unpace lets the agent print without waiting for the worker of a run, because its turn has ended
// or was interrupted.
func (s *Server) unpace(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.run == run {
		s.link.pace.ended = true
		s.repace()
	}
}
