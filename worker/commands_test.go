package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/worker"
)

// notifier records the requested signals.
type notifier struct {
	mu      sync.Mutex
	current string // the open workflow run
	fails   bool
	sent    []string
	asked   int
}

func (n *notifier) send(what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, what)
	if n.fails {
		return errDeaf
	}
	return nil
}

func (n *notifier) SignalCommands(context.Context, string) error { return n.send("notify") }
func (n *notifier) SignalStop(context.Context, string) error     { return n.send("stop") }

func (n *notifier) CurrentRun(context.Context, string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.current, nil
}

// until waits for a condition on the recorded calls.
func (n *notifier) until(t *testing.T, what string, ok func(*notifier) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return ok(n)
	}, waitLimit, 5*time.Millisecond, what)
}

func (n *notifier) set(change func(*notifier)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func TestCommandsAreSignalledAgainUntilTheyAreRead(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	s, _, err := db.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	_, err = db.CommandSubmit(t.Context(), session.Command{SessionID: s.ID, Kind: session.CommandWake})
	require.NoError(t, err)

	n := &notifier{fails: true}
	start(t, worker.Config{
		Temporal: dial(t), Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}},
		Commands: worker.CommandRelay{Rows: db, Signaler: n, Every: 10 * time.Millisecond, Age: time.Millisecond},
	})
	n.until(t, "a signal that failed is sent again", func(n *notifier) bool { return len(n.sent) >= 2 && n.sent[0] == "notify" })

	_, err = db.SessionLook(t.Context(), s.ID, "w1")
	require.NoError(t, err)
	n.set(func(n *notifier) { n.current, n.fails = "w1", false })
	n.until(t, "the run is looked at", func(n *notifier) bool { return n.asked >= 2 })
	n.set(func(n *notifier) { n.sent, n.asked = nil, 0 })
	n.until(t, "it is looked at again", func(n *notifier) bool { return n.asked >= 2 })
	n.set(func(n *notifier) {
		require.Empty(t, n.sent, "the run that has read the command is open")
		n.current = "w2" // as after a reset
	})
	n.until(t, "another run is signalled", func(n *notifier) bool { return len(n.sent) > 0 && n.sent[0] == "notify" })

	_, err = db.CommandSubmit(t.Context(), session.Command{SessionID: s.ID, Kind: session.CommandStop})
	require.NoError(t, err)
	n.until(t, "a stop is signalled as one", func(n *notifier) bool { return len(n.sent) > 0 && n.sent[len(n.sent)-1] == "stop" })
}
