package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
)

// Reconcile lists the provider's sandboxes once and compares them with what the
// sessions own. Sandboxes that no session owns are terminated first, then images
// that nothing needs are deleted, then the health of what is left is looked at and
// dead ones are reported to their workflows. A failure in one part does not keep
// Reconcile from the others; all errors are returned together.
func (c *Control) Reconcile(ctx context.Context) (Reconciled, error) {
	stop := beat(ctx)
	defer stop()
	var out Reconciled
	// The rows first: a sandbox that is created between the two looks is then
	// listed without a row and young, rather than a row without a sandbox.
	rows, err := c.Store.SandboxesOpen(ctx, "")
	if err != nil {
		return out, stored(err)
	}
	listed, err := c.Sandbox.List(ctx)
	if err != nil {
		return out, err
	}
	out.Listed = len(listed)
	running := make(map[string]bool, len(listed))
	for _, l := range listed {
		running[l.ID] = true
	}
	failed := errors.Join(
		c.reapRows(ctx, rows, &out),
		c.reap(ctx, rows, listed, &out),
		c.deleteSnapshots(ctx, &out),
		c.revive(ctx, &out), // before reports, which only an open workflow hears
		c.health(ctx, rows, running, &out),
	)
	if failed == nil && (out.Reported > 0 || out.Terminated > 0 || out.Deleted > 0) {
		activity.GetLogger(ctx).Info("reconciled", "reported", out.Reported, "terminated", out.Terminated, "deleted", out.Deleted)
	}
	return out, failed
}
