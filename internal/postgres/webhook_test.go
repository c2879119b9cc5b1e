package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

func (b *harness) webhook(t *testing.T, filter lifecycle.Filter) webhook.Endpoint {
	t.Helper()
	e, err := b.WebhookCreate(b.ctx, webhook.Endpoint{ID: session.NewID(webhook.Prefix), URL: "https://example.com", Filter: filter}, []byte("sealed"))
	require.NoError(t, err)
	require.True(t, e.Enabled)
	return e
}

// dispatch creates deliveries for all undispatched events.
func (b *harness) dispatch(t *testing.T) {
	t.Helper()
	for more := true; more; {
		_, err := b.LifecycleNumber(b.ctx)
		require.NoError(t, err)
		more, err = b.WebhooksDispatch(b.ctx)
		require.NoError(t, err)
	}
}

func (b *harness) deliveries(t *testing.T, id string, status webhook.Status) []webhook.Delivery {
	t.Helper()
	items, _, err := b.WebhookDeliveryList(b.ctx, id, status, 200, "")
	require.NoError(t, err)
	return items
}

func TestEachEventIsInOneDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.lifecycle(t, 0, lifecycle.Filter{}).Position
	all, idle := b.webhook(t, lifecycle.Filter{}), b.webhook(t, lifecycle.Filter{Types: []lifecycle.Type{lifecycle.PromptFailed}, SessionID: b.id})
	const prompts = 30
	b.running(t)
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				_, err := b.LifecycleNumber(b.ctx)
				noError(t, err)
				_, err = b.WebhooksDispatch(b.ctx)
				noError(t, err)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range prompts {
		runID := b.begin(t, b.submit(t, "word"))
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeFailed})
		require.NoError(t, err)
	}
	close(done)
	others.Wait()
	b.dispatch(t)
	want, got := map[int64]lifecycle.Type{}, map[int64]lifecycle.Type{}
	for _, e := range b.lifecycle(t, before, lifecycle.Filter{}).Events {
		want[e.Position] = e.Type
	}
	require.Greater(t, len(want), prompts)
	for _, d := range b.deliveries(t, all.ID, "") {
		require.Empty(t, got[d.Position])
		got[d.Position] = d.Type
		require.Equal(t, b.id, d.SessionID)
	}
	require.Equal(t, want, got)
	require.Len(t, b.deliveries(t, idle.ID, webhook.Pending), prompts)
	some, next, err := b.WebhookDeliveryList(b.ctx, idle.ID, "", 20, "")
	require.NoError(t, err)
	rest, end, err := b.WebhookDeliveryList(b.ctx, idle.ID, "", 20, next)
	require.NoError(t, err)
	require.Empty(t, end)
	require.Len(t, append(some, rest...), prompts)
}

func TestDeliveryLifecycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.webhook(t, lifecycle.Filter{Types: []lifecycle.Type{lifecycle.SessionRunning}})
	b.running(t)
	b.dispatch(t)
	ids, err := b.WebhookDeliveriesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.NoError(t, b.WebhookDeliveriesStarted(b.ctx, ids))
	again, err := b.WebhookDeliveriesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, again)

	due, err := b.WebhookDeliveryDue(b.ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, b.id, due.Event.Session.ID)
	require.JSONEq(t, string(b.events(t)[0].Data), string(due.Event.Data))
	require.Equal(t, []byte("sealed"), due.Sealed)
	try := func(v webhook.Verdict, code int) bool {
		ended, err := b.WebhookAttempted(b.ctx, ids[0], &webhook.Attempt{At: time.Now(), Duration: time.Second, Code: code, Error: fmt.Sprint(code)}, v)
		require.NoError(t, err)
		return ended
	}
	require.False(t, try(webhook.Verdict{Status: webhook.Pending, Pause: time.Hour}, 500))
	e, err := b.WebhookGet(b.ctx, hook.ID)
	require.NoError(t, err)
	require.False(t, e.FailingSince.IsZero())
	require.EqualValues(t, 1, e.Pending)
	require.True(t, try(webhook.Verdict{Status: webhook.Delivered}, 204))
	d, err := b.WebhookDeliveryGet(b.ctx, hook.ID, ids[0])
	require.NoError(t, err)
	require.Equal(t, webhook.Delivered, d.Status)
	require.Len(t, d.Attempts, 2)
	require.Equal(t, 500, d.Attempts[0].Code)
	e, err = b.WebhookGet(b.ctx, hook.ID)
	require.NoError(t, err)
	require.True(t, e.FailingSince.IsZero())
	require.True(t, try(webhook.Verdict{Status: webhook.Failed}, 500), "an ended delivery stays ended")

	n, err := b.WebhookRedeliver(b.ctx, hook.ID, "", []webhook.Status{webhook.Delivered}, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	again, err = b.WebhookDeliveriesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Equal(t, ids, again)
	require.True(t, try(webhook.Verdict{Status: webhook.Failed, Reason: webhook.ReasonDisabled, Disable: webhook.ReasonGone}, 410))
	e, err = b.WebhookGet(b.ctx, hook.ID)
	require.NoError(t, err)
	require.False(t, e.Enabled)
	require.Equal(t, webhook.ReasonGone, e.DisabledReason)
	_, err = b.WebhookRedeliver(b.ctx, hook.ID, ids[0], nil, time.Time{})
	require.Equal(t, failure.IllegalState, failure.CodeOf(err))
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	b.transit(t, session.EventSaved, "")
	b.dispatch(t)
	e, err = b.WebhookUpdate(b.ctx, hook.ID, func(e *webhook.Endpoint) { e.Enabled, e.Filter.Types = true, nil })
	require.NoError(t, err)
	require.True(t, e.Enabled)
	require.Empty(t, e.DisabledReason)
	b.dispatch(t)
	require.Empty(t, b.deliveries(t, hook.ID, webhook.Pending), "it gets no events of the time in between")
	require.NoError(t, b.WebhookDelete(b.ctx, hook.ID))
	due, err = b.WebhookDeliveryDue(b.ctx, ids[0])
	require.Equal(t, failure.NoDelivery, failure.CodeOf(err), "%v", due)
}

func TestFailingWebhookIsDisabledAfterDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.webhook(t, lifecycle.Filter{})
	for range 2 {
		_, err := b.WebhookTest(b.ctx, hook.ID)
		require.NoError(t, err)
	}
	ids, err := b.WebhookDeliveriesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, ids, 2)
	fail := func() bool {
		ended, err := b.WebhookAttempted(b.ctx, ids[0], &webhook.Attempt{At: time.Now(), Error: "refused"}, webhook.Verdict{Status: webhook.Pending, Pause: time.Hour})
		require.NoError(t, err)
		return ended
	}
	require.False(t, fail())
	query[string](b.ctx, t, b.url, "UPDATE webhooks SET failing_since = failing_since - interval '121 hours' RETURNING id")
	require.True(t, fail())
	for _, d := range b.deliveries(t, hook.ID, "") {
		require.Equal(t, webhook.Failed, d.Status)
		require.Equal(t, webhook.ReasonDisabled, d.Reason)
	}
	e, err := b.WebhookGet(b.ctx, hook.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.ReasonFailing, e.DisabledReason)
}

func TestConcurrentDeliveriesOfWebhookAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow, other := b.webhook(t, lifecycle.Filter{}), b.webhook(t, lifecycle.Filter{})
	for range 3 * webhook.MaxBeginning {
		_, err := b.WebhookTest(b.ctx, slow.ID)
		require.NoError(t, err)
	}
	_, err := b.WebhookTest(b.ctx, other.ID)
	require.NoError(t, err)
	ids, err := b.WebhookDeliveriesDue(b.ctx, 100)
	require.NoError(t, err)
	require.Len(t, ids, webhook.MaxBeginning+1)
	require.NoError(t, b.WebhookDeliveriesStarted(b.ctx, ids))
	none, err := b.WebhookDeliveriesDue(b.ctx, 100)
	require.NoError(t, err)
	require.Empty(t, none)
	// A lost workflow is started again when its attempt is overdue.
	query[string](b.ctx, t, b.url, "UPDATE webhook_deliveries SET started_at = started_at - interval '1 hour', next_at = next_at - interval '1 hour' WHERE id = '"+ids[0]+"' RETURNING id")
	lost, err := b.WebhookDeliveriesDue(b.ctx, 100)
	require.NoError(t, err)
	require.Equal(t, ids[:1], lost)
}

func TestWebhooksAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range webhook.MaxEndpoints {
		b.webhook(t, lifecycle.Filter{})
	}
	_, err := b.WebhookCreate(b.ctx, webhook.Endpoint{ID: session.NewID(webhook.Prefix)}, []byte("x"))
	require.Equal(t, failure.LimitReached, failure.CodeOf(err))
}

func TestSecretOfWebhookIsRotatedAndSealedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.webhook(t, lifecycle.Filter{})
	d, err := b.WebhookTest(b.ctx, hook.ID)
	require.NoError(t, err)
	_, err = b.WebhookRotate(b.ctx, hook.ID, []byte("new"), time.Hour)
	require.NoError(t, err)
	changed, failed, err := b.WebhooksReseal(b.ctx, func(_ string, sealed []byte) ([]byte, bool, error) {
		return append([]byte("re"), sealed...), true, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{changed, failed})
	due, err := b.WebhookDeliveryDue(b.ctx, d.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"renew", "resealed"}, []string{string(due.Sealed), string(due.OldSealed)})
	_, err = b.WebhookRotate(b.ctx, hook.ID, []byte("newer"), 0)
	require.NoError(t, err)
	due, err = b.WebhookDeliveryDue(b.ctx, d.ID)
	require.NoError(t, err)
	require.Equal(t, "newer", string(due.Sealed))
	require.Nil(t, due.OldSealed)
}
