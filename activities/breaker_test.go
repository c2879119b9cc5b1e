package activities_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// starts makes the first sandbox of a new session.
func (b *harness) starts(t *testing.T, sessionID string) error {
	t.Helper()
	_, err := do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: sessionID, Generation: 1})
	return err
}

// pauseOver makes the pause of the open breaker end.
func (b *harness) pauseOver(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	tag, err := conn.Exec(b.ctx, "UPDATE breakers SET retry_at = now() - interval '1 minute'")
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

// TestRepeatedStartFailuresOpenBreaker uses each kind of error that the driver returns while a
// provider is unavailable. The provider is not called until the pause has ended. Then one start
// tries it, and the first success lets all others start, on any worker.
func TestRepeatedStartFailuresOpenBreaker(t *testing.T) {
	t.Parallel()
	for _, code := range []driver.Code{driver.Unavailable, driver.Throttled, driver.Timeout} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			_, err := b.image.Prepare(b.ctx, demo.Name)
			require.NoError(t, err)
			before := b.memory.Calls(memsandbox.OpCreate)
			b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpCreate, Code: code, N: breaker.Threshold + 1})
			for range breaker.Threshold {
				requirePassing(t, b.starts(t, b.session(t)))
			}
			b.build() // another worker
			eager, _, err := b.db.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: demo.Name}, nil, session.Idempotency{})
			require.NoError(t, err)
			waiting := eager.ID
			requireType(t, activities.BreakerOpen, b.starts(t, waiting))
			err = b.starts(t, waiting)
			require.False(t, activities.IsFinal(err), "it heals by itself")
			app, ok := errors.AsType[*temporal.ApplicationError](err)
			require.True(t, ok)
			require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category(), "no line at ERROR for each wait")
			require.Equal(t, before+breaker.Threshold, b.memory.Calls(memsandbox.OpCreate), "the provider is left alone")

			s, err := b.db.SessionGet(b.ctx, waiting)
			require.NoError(t, err)
			require.NotNil(t, s.StartWait)
			require.Contains(t, s.StartWait.Reason, string(code))
			require.NotContains(t, s.StartWait.Reason, "ses_", "it is shown to others")
			facts, err := b.db.WhyFacts(b.ctx, waiting, why.Session, "")
			require.NoError(t, err)
			require.Equal(t, why.BreakerOpen, why.Explain(why.Session, "", facts, why.History{}).Code)
			events, err := b.db.EventsPage(b.ctx, waiting, 0, 100)
			require.NoError(t, err)
			require.Contains(t, string(events[len(events)-1].Data), "starts of sandboxes of agent demo have failed 5 times in a row")
			open, err := b.db.BreakersOpen(b.ctx)
			require.NoError(t, err)
			require.Len(t, open, 1)

			b.pauseOver(t)
			requirePassing(t, b.starts(t, waiting))
			requireType(t, activities.BreakerOpen, b.starts(t, b.session(t)))
			b.pauseOver(t)
			require.NoError(t, b.starts(t, waiting), "the provider is back")
			for range 3 {
				require.NoError(t, b.starts(t, b.session(t)))
			}
			open, err = b.db.BreakersOpen(b.ctx)
			require.NoError(t, err)
			require.Empty(t, open)
		})
	}
}

// TestRefusalsOfOneSessionDoNotOpenBreaker checks that permanent refusals are not counted, because
// they do not predict the result of other starts.
func TestRefusalsOfOneSessionDoNotOpenBreaker(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpCreate, Code: driver.Invalid, N: 2 * breaker.Threshold})
	for range 2 * breaker.Threshold {
		requireType(t, activities.Refused, b.starts(t, b.session(t)))
	}
	require.NoError(t, b.starts(t, b.session(t)))
}
