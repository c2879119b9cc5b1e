package api

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of signals. The work is already stored, so a signal that is not sent is only delayed: the
// relay of a worker sends it.
const (
	// signalsAtOnce bounds the concurrent signals when Temporal is slow. The relay sends further
	// signals.
	signalsAtOnce = 64
	// signalPause is the time after a failed signal during which requests do not wait for signals.
	signalPause = time.Second
)

// signals sends signals to workflows concurrently with the requests that cause them.
type signals struct {
	slots   chan struct{} // one slot for each signal in progress
	failed  atomic.Int64  // the time at which the last signal failed, in Unix nanoseconds; 0 if it succeeded
	running sync.WaitGroup
}

// signal sends one signal and waits up to SignalWait for its result, or not at all shortly after a
// failure. The signal continues if the client disconnects, since the work is stored.
func (s *Server) signal(ctx context.Context, sessionID string, send func(context.Context) error) {
	failed := func(err error) {
		s.metrics.failedSignals.Inc()
		s.logger.WarnContext(ctx, "signal failed; a relay re-sends it", slog.String("session_id", sessionID), slog.Any("error", err))
	}
	select {
	case s.signals.slots <- struct{}{}:
	default:
		failed(errSignalsFull)
		return
	}
	sent := make(chan struct{})
	s.signals.running.Go(func() {
		defer close(sent)
		defer func() { <-s.signals.slots }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.SignalTimeout)
		defer cancel()
		err := safely(ctx, send)
		if err == nil {
			s.signals.failed.Store(0)
			return
		}
		s.signals.failed.Store(time.Now().UnixNano())
		failed(err)
	})
	if at := s.signals.failed.Load(); at != 0 && time.Since(time.Unix(0, at)) < signalPause {
		return
	}
	timer := time.NewTimer(s.cfg.SignalWait)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// safely turns a panic of send into an error, because no handler recovers it outside a request.
func safely(ctx context.Context, send func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return send(ctx)
}
