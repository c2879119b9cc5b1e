package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// DeliverWebhookName is the name of the workflow of a delivery.
const DeliverWebhookName = "DeliverWebhook"

// webhooks only names the activities; the workflow never calls its methods.
var webhooks = new(activities.Webhooks)

// attemptOptions retry reads and records. A failure of the receiver is a result and is not retried.
var attemptOptions = workflow.ActivityOptions{
	StartToCloseTimeout: time.Minute,
	RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	Summary:             "make an attempt",
}

// DeliverWebhook attempts a delivery to a webhook until the delivery has ended. All its state is in
// Postgres, so a lost workflow can be restarted.
func DeliverWebhook(ctx workflow.Context, in activities.DeliveryRef) error {
	ctx = workflow.WithActivityOptions(ctx, attemptOptions)
	for {
		var came activities.Attempted
		if err := workflow.ExecuteActivity(ctx, webhooks.AttemptDelivery, in).Get(ctx, &came); err != nil {
			return err
		}
		if came.Ended {
			return nil
		}
		err := workflow.NewTimerWithOptions(ctx, came.Pause, workflow.TimerOptions{Summary: "waits before the next attempt"}).Get(ctx, nil)
		if err != nil {
			return err
		}
	}
}
