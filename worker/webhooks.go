package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/workflows"
)

// Webhooks creates deliveries of lifecycle events and starts a workflow for each. It runs in every
// worker; Postgres assigns each delivery to one worker. Without a store it does nothing.
type Webhooks struct {
	Store WebhookStore
	// Attempts makes the attempts.
	Attempts *activities.Webhooks
	// Every is the interval between passes. Default 500ms.
	Every time.Duration
}

// WebhookStore stores the webhooks and their deliveries.
type WebhookStore interface {
	// WebhooksDispatch makes some of the due deliveries, and reports whether there were any.
	WebhooksDispatch(ctx context.Context) (bool, error)
	// WebhookDeliveriesDue returns deliveries whose workflow must be started.
	WebhookDeliveriesDue(ctx context.Context, limit int) ([]string, error)
	// WebhookDeliveriesStarted records that their workflows were started.
	WebhookDeliveriesStarted(ctx context.Context, ids []string) error
	// WebhookDeliveriesDelete deletes some of the deliveries that ended before a time, and reports
	// whether others are left.
	WebhookDeliveriesDelete(ctx context.Context, before time.Time) (bool, error)
}

// deliveriesAtOnce bounds the delivery workflows that one pass starts.
const deliveriesAtOnce = 100

func (w *Worker) webhooks(ctx context.Context) error {
	h := w.config.Webhooks
	if h.Store == nil {
		return nil
	}
	if h.Every == 0 {
		h.Every = 500 * time.Millisecond
	}
	var deleted time.Time
	failing := false
	return repeat(ctx, h.Every, func() {
		err := w.deliverWebhooks(ctx, h.Store)
		if err == nil && time.Since(deleted) > deleteLifecycleEvery {
			before, more := time.Now().Add(-lifecycle.Retention), true
			for err == nil && more {
				more, err = h.Store.WebhookDeliveriesDelete(ctx, before)
			}
			if err == nil {
				deleted = time.Now()
			}
		}
		if err != nil && ctx.Err() == nil && !failing {
			w.config.Logger.WarnContext(ctx, "could not start deliveries to webhooks; retrying", slog.Any("error", err))
		}
		failing = err != nil
	})
}

// deliverWebhooks makes deliveries, and starts those that are due.
func (w *Worker) deliverWebhooks(ctx context.Context, store WebhookStore) error {
	for more := true; more; {
		var err error
		if more, err = store.WebhooksDispatch(ctx); err != nil {
			return err
		}
	}
	ids, err := store.WebhookDeliveriesDue(ctx, deliveriesAtOnce)
	if err != nil || len(ids) == 0 {
		return err
	}
	for i, id := range ids {
		if err = w.startDelivery(ctx, id); err != nil {
			ids = ids[:i]
			break
		}
	}
	if len(ids) > 0 {
		if err := store.WebhookDeliveriesStarted(ctx, ids); err != nil {
			return err
		}
	}
	return err
}

// startDelivery starts the workflow of a delivery, unless it is open.
func (w *Worker) startDelivery(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := w.config.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "webhook-" + id, TaskQueue: w.queues.Control,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "delivery " + id + " to a webhook",
	}, workflows.DeliverWebhookName, activities.DeliveryRef{DeliveryID: id})
	if err != nil {
		return fmt.Errorf("start delivery %s: %w", id, err)
	}
	return nil
}
