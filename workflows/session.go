package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Session is the workflow of one session. It makes the decisions, and activities do the work. It
// reads the session's state from Postgres when it starts, so it may be reset, continued as new or
// restarted at any time. Cancelling it, for example in Temporal's UI, stops the session.
func Session(ctx workflow.Context, in contract.WorkflowInput) error {
	l := newLife(ctx, in)
	// The steps that end a session must not be cancelled.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := l.handle(ctx); err != nil {
		return err
	}
	if err := l.load(ctx); err != nil {
		if !refused(err) {
			return err
		}
		if err := l.reconsider(ctx, err); err != nil || l.closed {
			return err
		}
	}
	return l.run(ctx)
}

// life is the state of a session's workflow. Signal handlers only set its
// fields; the main routine alone runs activities.
type life struct {
	id    string
	input contract.WorkflowInput

	// The state in Postgres when the workflow started, updated since.
	state        session.State
	reason       string
	errorCause   session.ErrorCause // cause of the state error; empty if an earlier version recorded the state
	agent        string
	workspace    string
	owner        string            // the owner in the session's metadata
	url          string            // of the session in the API; empty if the worker does not know the URL
	title        string            // set by a person
	memo         map[string]string // the memo in Temporal; nil until this run has set it
	last         endedTurn
	lazy         bool
	generation   int64
	transitionNo int64
	since        time.Time // the start of the state; zero if this run does not know the time
	sandboxID    string
	deadline     time.Time     // the time at which the provider ends the sandbox; zero: never
	margin       time.Duration // how long before the deadline the session moves
	notices      notices
	bundleID     string // the bundle to wake from
	idleTimeout  time.Duration
	lastActivity time.Time
	queue        *session.Queue
	processing   *session.Processing // a run to continue, read when the workflow started
	parked       *session.Processing // a run that waits for people while the session is hibernated
	parkAfter    time.Duration       // see activities.OpenedSession

	// Pending requests.
	wants           contract.Wants
	pending         []activities.PendingCommand // the result of the last read; wants contains their requests too
	stopReason      string                      // the reason of a stop that no client requested
	signalled       bool                        // work may have been submitted since the last read
	promptSignalled bool                        // a signal of a prompt is unanswered
	moved           bool                        // a turn or a transition has ended since the last read
	cancelled       bool                        // cancelled in Temporal; the stop is not stored yet
	rechecked       bool                        // the pending work was read after the session became idle
	looks           int                         // number of reads in this turn
	lookedAt        time.Time
	abort           bool                   // interrupt the running turn
	lost            contract.SandboxSignal // the sandbox that is presumed lost; zero for none

	opened bool // the fields above were read from Postgres
	stale  bool // Postgres may have a newer state than this workflow
	// superseded means that another run of the workflow has opened the session after this one, as
	// happens in a reset.
	superseded      bool
	turn            *session.Processing // the run in progress; in an attended session it may have ended
	attends         time.Duration       // how long turns may attend the session; 0 for never
	keepsRoom       bool                // see activities.OpenedSession
	closesAsleep    bool                // see activities.OpenedSession
	hibernatedInRun bool                // during this run of the workflow
	attended        bool                // the running turn may claim prompts by itself
	newest          string              // the last prompt known to have arrived during the attendance
	resignalled     bool                // a prompt that an attendant should have claimed was signalled again
	leftovers       []workflow.Future   // the activities of turns that the workflow has ended, until they end
	doing           string
	timer           pendingTimer
	signals         signals
	canceled        workflow.ReceiveChannel // nil once the cancellation is received
	refusals        refusals
	delay           delay
	losses          losses
	trouble         trouble
	continued       int64
	closed          bool
	taskQueue       string // the queue on which the workflow continues as new; "" is the current one
}

func newLife(ctx workflow.Context, in contract.WorkflowInput) *life {
	l := &life{
		id:           in.SessionID,
		input:        in,
		state:        session.Initializing,
		idleTimeout:  session.DefaultIdleTimeout,
		lastActivity: workflow.Now(ctx),
		queue:        session.NewQueue(nil, nil),
		doing:        "load the session",
		canceled:     ctx.Done(),
	}
	if c := in.Carried; c != nil {
		l.wants, l.continued = c.Wants, c.Runs
		l.trouble.tries, l.trouble.since = c.Retries, c.ErrorSince
		if d := c.Delay; d != nil {
			l.delay = delay{code: d.Code, times: d.Times, since: d.Since, reported: d.Reported, cause: d.Cause}
		}
		if s := c.Losses; s != nil {
			l.losses = losses{times: s.Times, since: s.Since, up: s.Up, paused: s.Paused, reported: s.Reported}
		}
		if !c.LastActivity.IsZero() {
			l.lastActivity = c.LastActivity
		}
		l.queue = session.NewQueue(nil, c.Seen)
	}
	return l
}

// load reads the session from Postgres. Earlier signals are merged, not overwritten.
func (l *life) load(ctx workflow.Context) error {
	l.stale, l.superseded = false, false
	l.signalled, l.moved, l.promptSignalled = false, false, false
	var o activities.OpenedSession
	if err := l.record(ctx, "load the session", control.OpenSession, activities.SessionRef{SessionID: l.id}, &o); err != nil {
		return err
	}
	if o.Held {
		l.forgetPrompts()
	}
	l.state, l.reason, l.errorCause = o.Status, o.StatusReason, o.ErrorCause
	if l.state != session.Error {
		l.trouble.since = time.Time{}
	}
	l.agent, l.workspace, l.lazy = o.Agent, o.Workspace, o.Lazy
	l.owner, l.url, l.title = o.Owner, o.URL, o.Title
	l.generation, l.transitionNo = o.Generation, o.TransitionNo
	if l.transitionNo == 0 && !l.lazy && l.since.IsZero() {
		l.since = workflow.Now(ctx)
	}
	l.sandboxID, l.bundleID = o.SandboxID, o.BundleID
	l.taskQueue = o.Queue
	l.plan(orNow(ctx, o.SandboxSince), o.Deadline)
	l.idleTimeout, l.processing, l.parked = o.IdleTimeout, o.Processing, nil
	if o.Processing != nil && o.Processing.Parked {
		l.processing, l.parked = nil, o.Processing
	}
	l.parkAfter = o.ParkAfter
	l.attends, l.keepsRoom, l.closesAsleep = o.Attend, o.KeepsRoom, o.ClosesAsleep
	l.notices.given = o.Announce
	if o.LastActivity.After(l.lastActivity) || l.continued == 0 {
		l.lastActivity = o.LastActivity
	}
	for _, p := range o.Waiting {
		l.queue.Requeue(p)
	}
	l.opened = true
	l.replaceCommands(o.Commands)
	l.forget()
	return l.project(ctx)
}

// forget drops requests that arrived before the state was known and that the state does not allow.
func (l *life) forget() {
	l.abort = l.abort && (l.processing != nil || l.parked != nil)
	l.wants.Recover = l.wants.Recover && l.state == session.Error
	l.wants.Hibernate = l.wants.Hibernate && (l.state == session.Running || l.state == session.Restoring)
	l.wants.Force = l.wants.Force && l.wants.Hibernate
	l.wants.Drop = l.wants.Drop && l.wants.Hibernate
	l.wants.Restart = l.wants.Restart && l.wants.Hibernate
	l.wants.Sync = l.wants.Sync && (l.state == session.Running || l.state == session.Restoring)
	if !l.revertible() {
		l.wants.Revert = ""
	}
	l.wants.Wake = l.wants.Wake && l.state != session.Running && l.state != session.Error
}

// run executes the session, one state at a time, until the session has ended or has been hibernated
// for so long that it is unloaded. If the store refuses a record, run reads the session again.
func (l *life) run(ctx workflow.Context) error {
	for !l.closed {
		l.drain(ctx)
		if !l.cancelled && l.shouldContinue(ctx) {
			return l.continueAsNew(ctx)
		}
		err := l.reload(ctx)
		if err == nil {
			err = l.step(ctx)
		}
		if refused(err) {
			err = l.reconsider(ctx, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rereadsOnWake is the change since which the workflow reads the session again after a wake or a
// signal for unknown work, and settles or continues a run that it did not start in every state.
const rereadsOnWake = "rereads-on-wake"

// reload reads the session again if that was requested.
func (l *life) reload(ctx workflow.Context) error {
	if l.superseded {
		return l.load(ctx)
	}
	if !l.stale || workflow.GetVersion(ctx, rereadsOnWake, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		l.stale = false
		return nil
	}
	return l.load(ctx)
}

// settleEarlier ends a run that an earlier run of this workflow, or a claim whose answer was lost,
// has left open in a state without turns. While hibernating, the turn first ends in the sandbox,
// which still exists.
func (l *life) settleEarlier(ctx workflow.Context) error {
	run := *l.processing
	l.processing = nil
	if l.state == session.Hibernating && l.sandboxID != "" {
		return l.runTurn(ctx, run)
	}
	return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
}

func (l *life) step(ctx workflow.Context) error {
	if l.processing != nil && l.state != session.Running && !l.state.Final() && !l.wants.Stop &&
		workflow.GetVersion(ctx, rereadsOnWake, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		return l.settleEarlier(ctx)
	}
	switch {
	case l.state.Final():
		return l.complete(ctx)
	case l.cancelled:
		return l.recordCancel(ctx)
	case l.wants.Stop:
		return l.terminate(ctx)
	case l.parked != nil && l.parkedDue():
		return l.readParked(ctx)
	case l.readDue(ctx):
		return l.readWaiting(ctx)
	}
	switch l.state {
	case session.Initializing:
		return l.initialize(ctx)
	case session.Running:
		return l.serve(ctx)
	case session.Hibernating:
		return l.hibernate(ctx)
	case session.Hibernated:
		return l.sleep(ctx)
	case session.Restoring:
		return l.restore(ctx)
	case session.Error:
		return l.waitForHelp(ctx)
	default:
		return l.complete(ctx)
	}
}

// complete ends the workflow of a terminated session. Prompts that lost the race against the stop
// end as cancelled.
func (l *life) complete(ctx workflow.Context) error {
	cancel := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
	if err := l.record(ctx, "cancel queued prompts", control.CancelPrompts, cancel, nil); err != nil {
		return err
	}
	if err := l.record(ctx, "close the session", control.CloseSession, activities.SessionRef{SessionID: l.id}, nil); err != nil {
		return err
	}
	l.drain(ctx)
	l.closed = true
	return nil
}

// shouldContinue reports whether the history has grown so long that the workflow continues as new.
// It is called only between steps, with no activity in progress.
func (l *life) shouldContinue(ctx workflow.Context) bool {
	if l.state.Final() && l.refusals.times == 0 {
		return false // the workflow completes after two more records
	}
	if l.awaitsLeftovers() {
		return false // their workers notice their end within a heartbeat
	}
	info := workflow.GetInfo(ctx)
	if l.closesAsleep && l.hibernatedInRun && l.wakes() {
		return true // the session wakes on the current build; if it stays hibernated, its workflow completes
	}
	limit := maxHistoryEvents
	if l.keepsRoom {
		limit -= stepEvents
	}
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= limit
}

func (l *life) continueAsNew(ctx workflow.Context) error {
	l.timer.stop()
	l.replaceCommands(nil) // the next run reads them again
	if l.taskQueue != "" {
		ctx = workflow.WithWorkflowTaskQueue(ctx, l.taskQueue)
	}
	input := contract.WorkflowInput{SessionID: l.id, Carried: l.carriedState()}
	if !l.closesAsleep {
		return workflow.NewContinueAsNewError(ctx, contract.WorkflowName, input)
	}
	// The next run reads everything again, so it does not need the build that this one is pinned
	// to.
	current := workflow.ContinueAsNewErrorOptions{InitialVersioningBehavior: workflow.ContinueAsNewVersioningBehaviorAutoUpgrade}
	return workflow.NewContinueAsNewErrorWithOptions(ctx, current, contract.WorkflowName, input)
}

// carriedState returns the state that the next run starts with. It includes deadlines, so that an
// idle session hibernates, and the sandbox of a session in error is saved, at the same time as
// without a new run.
func (l *life) carriedState() *contract.CarriedState {
	c := &contract.CarriedState{
		Wants: l.wants, Seen: l.queue.Seen(), Runs: l.continued + 1, Retries: l.trouble.tries,
		LastActivity: l.lastActivity, ErrorSince: l.trouble.since,
	}
	if d := l.delay; d.code != "" {
		c.Delay = &contract.CarriedDelay{Code: d.code, Times: d.times, Since: d.since, Reported: d.reported, Cause: d.cause}
	}
	if s := l.losses; s.times > 0 {
		c.Losses = &contract.CarriedLosses{Times: s.times, Since: s.since, Up: s.up, Paused: s.paused, Reported: s.reported}
	}
	return c
}
