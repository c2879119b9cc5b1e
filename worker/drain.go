package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Drain hibernates every session of the installation before the worker stops, for installations
// whose sandboxes end with it. Without Rows, a worker hands over its turns instead.
//
//	the worker is to stop ──▶ no new runs, no wakes; every awake session gets the command hibernate ──▶ all sleep ──▶ stop
//	                             │ Timeout: runs in progress are interrupted       ▲
//	                             └─────────────────────────────────────────────────┘
//
// Sessions that are not hibernated within Grace after that are abandoned: their sandboxes end, and
// they continue from their last bundles.
type Drain struct {
	Rows     AwakeSessions
	Signaler CommandSignaler
	// Shutdown is set first; the activities have it too.
	Shutdown *activities.Shutdown
	// Timeout is how long runs in progress may continue. Default 0: they are interrupted at once.
	Timeout time.Duration
	// Grace is how long interrupted turns may take to end, and sessions to be saved. Default 45s.
	Grace time.Duration
}

// drainGrace is the default of Drain.Grace.
const drainGrace = 45 * time.Second

// AwakeSessions lists the sessions to hibernate.
type AwakeSessions interface {
	// Awake lists the sessions that are running, restoring or hibernating.
	Awake(ctx context.Context) ([]backlog.Awake, error)
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
}

const (
	drainInterval = 100 * time.Millisecond // between two queries for awake sessions
	drainAtOnce   = 16                     // concurrent requests
	drainAskAgain = 2 * time.Second        // a client's wake may have superseded the hibernation
)

// run returns when all sessions are hibernated, when the time has elapsed, or when ctx ends.
func (d Drain) run(ctx context.Context, logger *slog.Logger) {
	if d.Rows == nil {
		return
	}
	if d.Grace == 0 {
		d.Grace = drainGrace
	}
	d.Shutdown.Begin()
	interruptAt := time.Now().Add(d.Timeout)
	ctx, cancel := context.WithDeadline(ctx, interruptAt.Add(d.Grace))
	defer cancel()
	r := drain{Drain: d, logger: logger, asked: map[string]request{}}
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for {
		left, err := r.look(ctx, !time.Now().Before(interruptAt))
		if err == nil && left == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			logger.WarnContext(ctx, "the worker stops although sessions are awake; they continue from their last bundles",
				slog.Int("sessions", left), slog.Any("error", err))
			return
		}
	}
}

// drain is a running Drain.
type drain struct {
	Drain
	logger    *slog.Logger
	announced bool

	mu    sync.Mutex
	asked map[string]request
}

// request is the last request to a session.
type request struct {
	at     time.Time
	forced bool
}

// look requests the hibernation of the awake sessions and returns their number.
func (d *drain) look(ctx context.Context, force bool) (int, error) {
	awake, err := d.Rows.Awake(ctx)
	if err != nil {
		return 0, err
	}
	d.announce(ctx, awake)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(drainAtOnce)
	for _, s := range awake {
		if s.Status == session.Hibernating { // the session is already hibernating
			continue
		}
		force := force && s.RunID != ""
		d.mu.Lock()
		last := d.asked[s.SessionID]
		d.mu.Unlock()
		first := last.at.IsZero() || force && !last.forced
		if first || time.Since(last.at) >= drainAskAgain {
			group.Go(func() error { return d.ask(ctx, s.SessionID, force, first) })
		}
	}
	return len(awake), group.Wait()
}

func (d *drain) announce(ctx context.Context, awake []backlog.Awake) {
	if d.announced || len(awake) == 0 {
		return
	}
	d.announced = true
	runs := 0
	for _, s := range awake {
		if s.RunID != "" {
			runs++
		}
	}
	d.logger.WarnContext(ctx, "hibernating the sessions before the worker stops; runs in progress are interrupted at the drain timeout",
		slog.Int("sessions", len(awake)), slog.Int("runs", runs), slog.Duration("interrupted_after", d.Timeout))
}

// ask requests the hibernation of one session. It signals the workflow the first time, and later if
// the command was no longer pending.
func (d *drain) ask(ctx context.Context, sessionID string, force, first bool) error {
	done, err := d.Rows.CommandSubmit(ctx, session.Command{
		SessionID: sessionID, Kind: session.CommandHibernate, Force: force, Reason: session.ReasonShutdown,
	})
	switch failure.CodeOf(err) {
	case failure.IllegalState, failure.Terminated, failure.NoSession: // the state of the session has changed
		err = nil
	}
	if err == nil && (first || done.Notify) {
		err = d.Signaler.SignalCommands(ctx, sessionID) // even if Postgres has recorded the signal: this worker's relay has stopped
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		d.logger.WarnContext(ctx, "a session could not be asked to hibernate; retrying", slog.String("session_id", sessionID), slog.Any("error", err))
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[sessionID] = request{at: time.Now(), forced: force}
	return err
}
