package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// harness is a database with a session.
type harness struct {
	*postgres.DB
	url string
	ctx context.Context
	id  string
}

func setup(t *testing.T) *harness {
	t.Helper()
	url := postgrestest.URL(t)
	b := &harness{DB: postgrestest.Open(t, url), url: url, ctx: t.Context()}
	b.id = b.session(t)
	return b
}

func (b *harness) session(t *testing.T) string {
	t.Helper()
	s, created, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	require.True(t, created)
	return s.ID
}

// submit queues a prompt and returns its id.
func (b *harness) submit(t *testing.T, content string) string {
	t.Helper()
	p, _, created, err := b.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: content})
	require.NoError(t, err)
	require.True(t, created)
	return p.ID
}

// running reserves a sandbox and brings the session from initializing to running.
func (b *harness) running(t *testing.T) {
	t.Helper()
	b.reserve(t, 1)
	b.transit(t, session.EventReady, "")
}

func (b *harness) reserve(t *testing.T, generation int64) {
	t.Helper()
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, generation, "im-1"))
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, generation, fmt.Sprintf("sb-%d", generation), session.SandboxReady, time.Now().Add(time.Hour)))
}

// transit records the next transition of the session.
func (b *harness) transit(t *testing.T, event session.Event, reason string) session.Transition {
	t.Helper()
	step := b.next(t, event, reason)
	require.NoError(t, b.TransitionRecord(b.ctx, step))
	return step
}

func (b *harness) next(t *testing.T, event session.Event, reason string) session.Transition {
	t.Helper()
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	to, err := session.Next(s.Status, event)
	require.NoError(t, err)
	return session.Transition{
		SessionID: b.id, No: s.TransitionNo + 1, From: s.Status, To: to, Event: event,
		Reason: reason, Generation: s.Generation, At: time.Now(),
	}
}

// begin claims a prompt and attaches an attempt with the token "t1".
func (b *harness) begin(t *testing.T, promptID string) string {
	t.Helper()
	runID := session.NewID(session.RunPrefix)
	v, err := b.RunBegin(b.ctx, b.id, promptID, runID, b.generation(t))
	require.NoError(t, err)
	require.True(t, v.Granted, "verdict: %+v", v)
	_, err = b.RunAttach(b.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	return runID
}

func (b *harness) generation(t *testing.T) int64 {
	t.Helper()
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	return s.Generation
}

// events returns the whole log of the session.
func (b *harness) events(t *testing.T) []eventlog.Event {
	t.Helper()
	var events []eventlog.Event
	for {
		page, err := b.EventsPage(b.ctx, b.id, int64(len(events)), 100_000)
		require.NoError(t, err)
		if len(page) == 0 {
			return events
		}
		events = append(events, page...)
	}
}

// types returns the types of the events after a position.
func (b *harness) types(t *testing.T, after int64) []string {
	t.Helper()
	var out []string
	for _, e := range b.events(t) {
		if e.Seq > after {
			out = append(out, e.Type)
		}
	}
	return out
}

func (b *harness) position(t *testing.T) int64 {
	t.Helper()
	seq, err := b.EventsPosition(b.ctx, b.id)
	require.NoError(t, err)
	return seq
}

// appendOne commits one append and returns its verdict.
func (b *harness) appendOne(t *testing.T, a eventlog.Append) error {
	t.Helper()
	verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{a})
	require.NoError(t, err)
	require.Len(t, verdicts, 1)
	return verdicts[0]
}

func draft(kind string, frame int64, n int, data string) eventlog.Draft {
	return eventlog.Draft{Type: kind, ConversationID: "main", At: time.Now(), Data: json.RawMessage(data), Frame: frame, N: n}
}

// sql executes a statement for which there is no method, such as one that makes rows old.
func (b *harness) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	_, err = conn.Exec(b.ctx, statement, args...)
	require.NoError(t, err)
}

func requireCode(t *testing.T, want failure.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, failure.CodeOf(err), "error: %v", err)
}
