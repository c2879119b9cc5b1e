package turn

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// refusalInterval and maxRefusalInterval bound the pause between two queries for connections
	// that the sandbox's network has refused. It doubles after each query without a refusal.
	refusalInterval    = 2 * time.Second
	maxRefusalInterval = 8 * time.Second
	// refusalTimeout bounds each query, including the last one, for which the end of the turn
	// waits.
	refusalTimeout = 5 * time.Second
	// maxRefusals ends the watch of one attempt at a turn. The store bounds the events of all its attempts.
	maxRefusals = 100
)

// refusalWatch records connections that the network of a turn's sandbox has refused as events. Those
// since the previous turn count as the turn's if their position is known.
type refusalWatch struct {
	turn   *attempt
	begun  bool          // after is known
	after  int64         // the newest refusal that was recorded or precedes the turn
	unsure bool          // whether the refusals after it are recorded is unknown: the response was lost
	count  int           // number of recorded refusals
	looked chan struct{} // closed when the first query has ended
	stop   chan struct{}
	once   sync.Once // closes stop
	done   chan struct{}
	leave  context.CancelFunc // cancels a query
}

// watchRefusals starts the watch. Unless their position is known, refusals before awaitBegin returns
// are not recorded.
func (a *attempt) watchRefusals(ctx context.Context) *refusalWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &refusalWatch{turn: a, looked: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}), leave: cancel}
	if to := a.in.RefusedTo; to != nil {
		w.begun, w.after = true, *to
		close(w.looked)
	}
	go func() {
		defer close(w.done)
		if a.in.RefusedTo == nil {
			worthwhile := w.look(ctx)
			close(w.looked)
			if !worthwhile {
				return
			}
		}
		w.run(ctx)
	}()
	return w
}

// awaitBegin returns when the watch has the position of the newest earlier refusal.
func (w *refusalWatch) awaitBegin() { <-w.looked }

// finish makes the watch end after it has recorded the remaining refusals, without waiting for it.
func (w *refusalWatch) finish() { w.once.Do(func() { close(w.stop) }) }

// end records the remaining refusals and returns when the watch has ended.
func (w *refusalWatch) end() {
	w.finish()
	<-w.done
}

// abandon ends the watch without another query. It does nothing after end.
func (w *refusalWatch) abandon() {
	w.leave()
	<-w.done
}

func (w *refusalWatch) run(ctx context.Context) {
	pause := refusalInterval
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stop:
			w.look(ctx)
			return
		case <-timer.C:
		}
		before := w.after
		if !w.look(ctx) {
			return
		}
		pause = nextRefusalPause(pause, w.after != before)
		timer.Reset(pause)
	}
}

// nextRefusalPause returns the next pause, given whether a connection was refused during this one.
func nextRefusalPause(pause time.Duration, refused bool) time.Duration {
	if refused {
		return refusalInterval
	}
	return min(2*pause, maxRefusalInterval)
}

// look records new refusals and reports whether to continue.
func (w *refusalWatch) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	found, last, err := w.turn.sandbox.Refusals(ctx, w.after)
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.Unsupported, sandbox.Gone:
		return false
	default:
		return true // the next query finds the same refusals
	}
	if !w.begun {
		w.begun, w.after = true, last
		return true
	}
	if found = found[:min(len(found), maxRefusals-w.count)]; len(found) > 0 {
		if err := w.turn.Store.NetworkRecord(ctx, w.turn.in.SessionID, w.turn.in.RunID, asRefusals(found)); err != nil {
			w.turn.Logger.WarnContext(ctx, "refused connections were not recorded",
				slog.String("session_id", w.turn.in.SessionID), slog.Any("error", err))
			w.unsure = true
			return true
		}
	}
	w.after, w.unsure = last, false
	w.count += len(found)
	return w.count < maxRefusals
}

// recordedTo returns the number up to which refusals are recorded, once the watch has ended; nil if
// that is unknown, or if there were too many.
func (w *refusalWatch) recordedTo() *int64 {
	if !w.begun || w.unsure || w.count >= maxRefusals {
		return nil
	}
	return new(w.after) // a pointer into w would keep the attempt, and those before it
}

func asRefusals(refusals []sandbox.Refusal) []session.Refusal {
	list := make([]session.Refusal, 0, len(refusals))
	for _, r := range refusals {
		list = append(list, session.Refusal{Host: r.Host, IP: r.IP, Port: r.Port, Protocol: r.Protocol, Verdict: r.Verdict, Count: r.Count})
	}
	return list
}
