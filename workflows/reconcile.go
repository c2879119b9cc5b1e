package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// ReconcileName is the name of the reconciling workflow.
const ReconcileName = "Reconcile"

// Reconcile compares the provider's sandboxes with those of the sessions, once.
func Reconcile(ctx workflow.Context) (activities.Reconciled, error) {
	o := reconcileOptions
	o.Summary = "compare the provider's sandboxes with the sessions"
	var found activities.Reconciled
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), control.Reconcile).Get(ctx, &found)
	return found, err
}
