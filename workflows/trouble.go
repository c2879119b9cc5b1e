package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// leavesError is the change since which a session in error looks after its sandbox, and tries again by itself
// where its reason may pass.
const leavesError = "leaves-error"

const (
	// errorGrace is how long a sandbox is kept in error before it is saved and terminated: long enough for a
	// person to look.
	errorGrace = 15 * time.Minute
	// firstRetry is the pause before a session leaves error by itself; it doubles up to maxRetry.
	firstRetry = 30 * time.Second
	maxRetry   = 10 * time.Minute
	// spentReason begins the reason of a session whose generations were all spent.
	spentReason = "no sandbox came to use: "
	// reasonInError is why such a sandbox is terminated.
	reasonInError = "in error"
)

// mayPass reports whether the reason of an error may pass. Everything else that may pass is repeated before it
// leads to error; refusals and damage wait for a person.
func mayPass(reason string) bool { return strings.HasPrefix(reason, spentReason) }

// trouble is what a session in error knows of its error.
type trouble struct {
	since      time.Time // zero until its step was looked at
	tries      int       // how often it has left error by itself since it last ran
	generation int64     // of the sandbox that it still has
	sandboxID  string
}

func (t trouble) retryAt() time.Time {
	return t.since.Add(min(firstRetry<<min(t.tries, 10), maxRetry))
}

func (t trouble) lost(s session.SandboxSignal) bool {
	return t.sandboxID != "" && s.Generation == t.generation && (s.SandboxID == "" || s.SandboxID == t.sandboxID)
}

// lookAfter does one thing of a session in error that nobody has recovered: save and release a sandbox that died or
// was kept long enough, try again where the reason may pass, or wait.
func (l *life) lookAfter(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	if l.trouble.since.IsZero() {
		l.trouble.since = now
		return l.findSandbox(ctx)
	}
	retry, release := l.trouble.retryAt(), l.trouble.since.Add(errorGrace)
	switch {
	case l.trouble.lost(l.lost):
		return l.salvage(ctx, true)
	case mayPass(l.reason) && !now.Before(retry):
		err := l.transit(ctx, session.EventRecover, session.ReasonRetry, nil)
		if err == nil {
			l.trouble.tries++
		}
		return err
	case l.trouble.sandboxID != "" && !now.Before(release):
		return l.salvage(ctx, false)
	}
	var until time.Time
	if l.trouble.sandboxID != "" {
		until = release
	}
	if mayPass(l.reason) && (until.IsZero() || retry.Before(until)) {
		until = retry
	}
	l.wait(ctx, "wait for recover or stop", until)
	return nil
}

// findSandbox reads from the row what there is of a sandbox: a create that failed may have left one. The generation
// to go on from stays as it is, so that recover may take that sandbox up again.
func (l *life) findSandbox(ctx workflow.Context) error {
	generation, sandboxID := l.generation, l.sandboxID
	if err := l.open(ctx); err != nil {
		l.trouble.since = time.Time{}
		return err
	}
	if l.state == session.Error {
		l.trouble.generation, l.trouble.sandboxID = l.generation, l.sandboxID
		l.generation, l.sandboxID = generation, sandboxID
	}
	return nil
}

// salvage saves what the sandbox of a session in error has that no bundle covers, or what is left of that, and ends
// it. One that cannot be saved is kept for as long again, unless it is gone and what is left is refused: a restore
// tries again to rescue that.
func (l *life) salvage(ctx workflow.Context, lost bool) error {
	request := activities.SaveRequest{
		SessionID: l.id, Generation: l.trouble.generation, SandboxID: l.trouble.sandboxID, Unsaved: true,
	}
	saved, err := l.saveOf(ctx, request, lost)
	switch {
	case l.wants.Stop:
		return nil
	case err != nil && (!lost || !activities.IsFinal(err)):
		workflow.GetLogger(ctx).Warn("could not save the sandbox of a session in error", "session_id", l.id, "error", err)
		l.trouble.since, l.lost = workflow.Now(ctx), session.SandboxSignal{}
		return nil
	case err == nil && saved.BundleID != "":
		l.bundleID = saved.BundleID
	}
	l.generation, l.sandboxID = l.trouble.generation, l.trouble.sandboxID
	if err := l.release(ctx, reasonInError); err != nil {
		return err
	}
	l.trouble.sandboxID = ""
	return nil
}
