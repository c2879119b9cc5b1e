package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/worker"
)

// sleepers has sessions that stay awake until they are signalled for a command that they can
// execute.
type sleepers struct {
	mu       sync.Mutex
	sessions map[string]*sleeper
	fails    int // of the next calls
	lost     int // of the next signals
}

type sleeper struct {
	backlog.Awake
	commands []session.Command
	endsAt   time.Time // end of its run, unless interrupted
	deaf     bool      // ignores commands
	refuses  bool
}

var errDown = errors.New("the server is unavailable")

func (s *sleepers) failing() bool {
	if s.fails == 0 {
		return false
	}
	s.fails--
	return true
}

func (s *sleepers) Awake(context.Context) ([]backlog.Awake, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing() {
		return nil, errDown
	}
	var awake []backlog.Awake
	for id, sl := range s.sessions {
		if sl.RunID != "" && !time.Now().Before(sl.endsAt) {
			sl.RunID = ""
			if len(sl.commands) > 0 {
				delete(s.sessions, id)
				continue
			}
		}
		awake = append(awake, sl.Awake)
	}
	return awake, nil
}

func (s *sleepers) CommandSubmit(_ context.Context, c session.Command) (session.Commanded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing() {
		return session.Commanded{}, errDown
	}
	sl := s.sessions[c.SessionID]
	if sl == nil || sl.refuses {
		return session.Commanded{}, failure.Errorf(failure.IllegalState, "not now")
	}
	if n := len(sl.commands); n > 0 && (sl.commands[n-1].Force || !c.Force) { // the command is pending
		return session.Commanded{}, nil
	}
	sl.commands = append(sl.commands, c)
	return session.Commanded{Notify: true}, nil
}

// wake is a client's wake, which supersedes the request.
func (s *sleepers) wake(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id].commands = nil
}

func (s *sleepers) SignalCommands(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		s.lost--
		return errDown
	}
	sl := s.sessions[id]
	if sl == nil || sl.deaf || len(sl.commands) == 0 {
		return nil
	}
	if sl.RunID == "" || sl.commands[len(sl.commands)-1].Force {
		delete(s.sessions, id)
	}
	return nil
}

func (s *sleepers) SignalStop(context.Context, string) error           { return errDown }
func (s *sleepers) CurrentRun(context.Context, string) (string, error) { return "", nil }

func awake(id, run string, ends time.Duration) *sleeper {
	return &sleeper{Awake: backlog.Awake{SessionID: id, Status: session.Running, RunID: run}, endsAt: time.Now().Add(ends)}
}

func TestDrainHibernatesSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleepers{sessions: map[string]*sleeper{
			"idle": awake("idle", "", 0), "brief": awake("brief", "r1", 2*time.Second), "long": awake("long", "r2", time.Hour),
		}}
		began, brief, long := time.Now(), s.sessions["brief"], s.sessions["long"]
		worker.RunDrain(t.Context(), worker.Drain{Rows: s, Signaler: s, Shutdown: new(activities.Shutdown), Timeout: 5 * time.Second})
		require.Empty(t, s.sessions)
		require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second), "as soon as the run that was in progress is interrupted")
		require.Len(t, brief.commands, 1, "it was asked once, and ended by itself")
		require.False(t, slices.ContainsFunc(brief.commands, func(c session.Command) bool { return c.Force }))
		require.Len(t, long.commands, 2)
		require.Equal(t, session.Command{SessionID: "long", Kind: session.CommandHibernate, Force: true, Reason: session.ReasonShutdown}, long.commands[1])
	})
}

func TestDrainContinuesDespiteFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleepers{fails: 7, lost: 3, sessions: map[string]*sleeper{"a": awake("a", "", 0), "b": awake("b", "r", time.Second)}}
		began := time.Now()
		worker.RunDrain(t.Context(), worker.Drain{Rows: s, Signaler: s, Shutdown: new(activities.Shutdown), Timeout: time.Minute})
		require.Empty(t, s.sessions)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

func TestDrainWaitsForWakingSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleepers{sessions: map[string]*sleeper{"a": awake("a", "r", 5*time.Second)}}
		time.AfterFunc(time.Second, func() { s.wake("a") })
		began := time.Now()
		worker.RunDrain(t.Context(), worker.Drain{Rows: s, Signaler: s, Shutdown: new(activities.Shutdown), Timeout: time.Minute})
		require.Empty(t, s.sessions)
		require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second), "at the end of its run")
	})
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deaf, refuses := awake("deaf", "r", time.Hour), awake("refuses", "", 0)
		deaf.deaf, refuses.refuses = true, true
		s := &sleepers{sessions: map[string]*sleeper{"deaf": deaf, "refuses": refuses, "quick": awake("quick", "", 0)}}
		began := time.Now()
		worker.RunDrain(t.Context(), worker.Drain{Rows: s, Signaler: s, Shutdown: new(activities.Shutdown), Timeout: time.Second, Grace: 3 * time.Second})
		require.InDelta(t, 4*time.Second, time.Since(began), float64(500*time.Millisecond))
		require.Len(t, s.sessions, 2)
		require.Len(t, deaf.commands, 2, "it is not asked without end")
	})
}
