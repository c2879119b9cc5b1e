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
// connection sends the notices that have accumulated during the previous notification.
//
// A notification also contains the new events if they are few and small, as those of most commits of
// an agent that prints at its own pace: readers in other processes then need not read them.
//
// Events of turns are sent on a separate channel, see turnsChannel.
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
	// wake has room for one: the loop takes all news when it wakes.
	wake chan struct{}
}

// news are the unsent events of a session.
type news struct {
	encoded []byte // empty if the events must be read
	last    int64  // the position of the last event; 0 if the events must be read
	ofTurn  bool   // all of them are events of turns
}

// notice is a notification.
type notice struct{ channel, payload string }

// origin is where events are from.
type origin int

const (
	outside origin = iota // a client, a workflow, or an operation of the system
	inTurn                // a turn: its output, its claim and its end
)

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
func (n *notifier) notify(from origin, sessionIDs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range sessionIDs {
		n.forget(n.newsOf(id, from, 0))
	}
	n.signal()
}

// publish sends committed events to readers, or makes them read those that are too large for a
// notification, or that have no data. It never blocks.
func (n *notifier) publish(from origin, events []eventlog.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range events {
		n.add(from, &events[i])
	}
	n.signal()
}

// newsOf returns the news of a session, to which news from an origin are added. The first news follow
// the position last. The caller holds mu.
func (n *notifier) newsOf(sessionID string, from origin, last int64) *news {
	of := n.grown[sessionID]
	if of == nil {
		of = &news{last: last, ofTurn: true}
		n.grown[sessionID] = of
	}
	of.ofTurn = of.ofTurn && from == inTurn
	return of
}

// add adds an event to the news of its session. The caller holds mu.
func (n *notifier) add(from origin, e *eventlog.Event) {
	of := n.newsOf(e.SessionID, from, e.Seq-1)
	n.full = n.full || n.size+len(e.Data) > maxNotify
	// Another goroutine may have published a later commit first.
	if n.full || e.Data == nil || of.last != e.Seq-1 {
		n.forget(of)
		return
	}
	before := len(of.encoded)
	of.encoded, of.last = appendEvent(of.encoded, e), e.Seq
	n.size += len(of.encoded) - before
}

// forget drops the events of news, which readers must read. The caller holds mu.
func (n *notifier) forget(of *news) {
	n.size -= len(of.encoded)
	of.encoded, of.last = nil, 0
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

// close returns when the loop has ended. Unsent news are lost; readers poll.
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

// take returns the accumulated notices.
func (n *notifier) take() []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.all, n.full, n.size = false, false, 0; clear(n.grown) }()
	if n.all {
		return []notice{{eventsChannel, everySession}} // every listener listens to it
	}
	var out []notice
	var ofTurns, others []string
	for _, id := range slices.Sorted(maps.Keys(n.grown)) {
		if n.grown[id].ofTurn {
			ofTurns = append(ofTurns, id)
		} else {
			others = append(others, id)
		}
	}
	for _, c := range []struct {
		channel  string
		sessions []string
	}{{eventsChannel, others}, {turnsChannel, ofTurns}} {
		if len(c.sessions) == 0 {
			continue
		}
		for _, payload := range notices(c.sessions, n.encoded) {
			out = append(out, notice{c.channel, payload})
		}
	}
	return out
}

// encoded returns the events of a session that a notice may contain. The caller holds mu.
func (n *notifier) encoded(sessionID string) []byte {
	if n.full {
		return nil
	}
	return n.grown[sessionID].encoded
}

// lost makes the next notification address every reader, since some notices were not sent.
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

// send sends the accumulated notices one by one, each in a transaction of a few microseconds.
func (n *notifier) send(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	for _, m := range n.take() {
		if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", m.channel, m.payload); err != nil {
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
