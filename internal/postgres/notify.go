package postgres

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// notifier wakes readers of sessions whose logs have grown. It notifies after the commits rather
// than within them: Postgres serializes the commits of transactions that notify, across all
// databases of a server, so that every append would wait for the disk flush of every other one. One
// connection sends the payloads that have accumulated during the previous notification.
//
// A notification also contains the new events if they are few and small, as those of most commits of
// an agent that prints at its own pace: readers in other processes then need not read them.
//
// A notification may be lost, with the process or the connection. Readers poll.
type notifier struct {
	connect func(context.Context) (*pgx.Conn, error)
	logger  *slog.Logger

	mu      sync.Mutex
	grown   map[string]*news
	size    int  // bytes of all news
	full    bool // they do not fit into a notification: all sessions must be read, which takes one statement
	all     bool // too many sessions to name
	stopped bool
	stop    context.CancelFunc // nil until the first notification
	done    chan struct{}
	// wake has room for one: the loop takes all payloads when it wakes.
	wake chan struct{}
}

// news are the unsent events of a session.
type news struct {
	encoded []byte // empty if the events must be read
	last    int64  // the position of the last event; 0 if the events must be read
}

const (
	// notifyTimeout bounds connecting, and each notification.
	notifyTimeout = 5 * time.Second
	// maxGrown bounds the sessions that are named; beyond it every reader checks its session.
	maxGrown = maxNotices * maxNotify / 40
	// Backoff of connection attempts.
	minNotifyBackoff = 100 * time.Millisecond
	maxNotifyBackoff = 5 * time.Second
)

func newNotifier(config *pgx.ConnConfig, logger *slog.Logger) *notifier {
	config = config.Copy()
	config.RuntimeParams["application_name"] += " (notify)"
	config.RuntimeParams["synchronous_commit"] = "off" // no data to flush
	return &notifier{
		connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) },
		logger:  logger, grown: map[string]*news{}, wake: make(chan struct{}, 1),
	}
}

// notify makes readers of the sessions check their logs. It never blocks.
func (n *notifier) notify(sessionIDs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range sessionIDs {
		n.forget(id)
	}
	n.signal()
}

// publish sends committed events to readers, or makes them read those that are too large for a
// notification, or that have no data. It never blocks.
func (n *notifier) publish(events []eventlog.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range events {
		n.add(&events[i])
	}
	n.signal()
}

// add adds an event to the news of its session. The caller holds mu.
func (n *notifier) add(e *eventlog.Event) {
	of := n.grown[e.SessionID]
	if of == nil {
		of = &news{last: e.Seq - 1}
		n.grown[e.SessionID] = of
	}
	n.full = n.full || n.size+len(e.Data) > maxNotify
	// Another goroutine may have published a later commit first.
	if n.full || e.Data == nil || of.last != e.Seq-1 {
		n.forget(e.SessionID)
		return
	}
	before := len(of.encoded)
	of.encoded, of.last = appendEvent(of.encoded, e), e.Seq
	n.size += len(of.encoded) - before
}

// forget drops the news of a session, which readers must read. The caller holds mu.
func (n *notifier) forget(sessionID string) {
	of := n.grown[sessionID]
	if of == nil {
		of = &news{}
		n.grown[sessionID] = of
	}
	n.size -= len(of.encoded)
	*of = news{}
}

// signal wakes the loop if there is anything to send. The caller holds mu.
func (n *notifier) signal() {
	if len(n.grown) > maxGrown {
		n.all = true
	}
	if n.stopped || n.all {
		clear(n.grown)
		n.size = 0
	}
	if n.stopped || !n.all && len(n.grown) == 0 {
		return
	}
	if n.stop == nil {
		var ctx context.Context
		ctx, n.stop = context.WithCancel(context.Background())
		n.done = make(chan struct{})
		go n.run(ctx)
	}
	select {
	case n.wake <- struct{}{}:
	default: // the loop is about to wake
	}
}

// close returns when the loop has ended. Unsent payloads are lost; readers poll.
func (n *notifier) close() {
	n.mu.Lock()
	n.stopped = true
	stop, done := n.stop, n.done
	n.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// take returns the accumulated payloads.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.all, n.full, n.size = false, false, 0; clear(n.grown) }()
	switch {
	case n.all:
		return []string{everySession}
	case len(n.grown) == 0:
		return nil
	}
	return notices(slices.Sorted(maps.Keys(n.grown)), func(id string) []byte {
		if n.full {
			return nil
		}
		return n.grown[id].encoded
	})
}

// lost makes the next notification address every reader, since some payloads were not sent.
func (n *notifier) lost() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = true
	n.signal()
}

func (n *notifier) run(ctx context.Context) {
	defer close(n.done)
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			hangUp(ctx, conn)
		}
	}()
	pauses := backoff.New(minNotifyBackoff, maxNotifyBackoff)
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
		var err error
		if conn == nil {
			bounded, cancel := context.WithTimeout(ctx, notifyTimeout)
			conn, err = n.connect(bounded)
			cancel()
		}
		if err == nil {
			if err = n.send(ctx, conn); err != nil {
				hangUp(ctx, conn)
				conn = nil
			}
		}
		if err == nil {
			pauses = backoff.New(minNotifyBackoff, maxNotifyBackoff)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause, _ := pauses.Next()
		n.logger.WarnContext(ctx, "could not notify readers; they poll instead", slog.Any("error", err), slog.Duration("backoff", pause))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		n.lost() //nolint:contextcheck // the loop runs already
	}
}

// send sends the accumulated payloads one by one, each in a transaction of a few microseconds.
func (n *notifier) send(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	for _, payload := range n.take() {
		if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload); err != nil {
			return err
		}
	}
	return nil
}

// hangUp closes a connection that is no longer usable.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	conn.Close(ctx) // it is discarded in any case
}
