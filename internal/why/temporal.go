package why

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Turns are executed by two activities.
const (
	runTurn            = "RunTurn"
	runTurnWhenClaimed = "RunTurnWhenClaimed"
)

func isTurn(activity string) bool { return activity == runTurn || activity == runTurnWhenClaimed }

// doing describes an activity.
var doing = map[string]string{
	runTurn: "the turn", runTurnWhenClaimed: "the turn", "CreateSandbox": "the creation of the sandbox", "RestoreSandbox": "the restore of the sandbox",
	"SaveBundle": "the snapshot", "TerminateSandbox": "the end of the sandbox", "Checkpoint": "the checkpoint", "Revert": "the revert",
	"AbortTurn": "the abort", "FlushTranscripts": "the flush of the transcripts",
}

func nameOf(activity string) string {
	if name, ok := doing[activity]; ok {
		return name
	}
	if activity == "" {
		return "a record in Postgres"
	}
	return "the step " + activity
}

// isSlow reports whether the duration of an attempt at an activity is relevant. Turns last as long
// as the agent works.
func isSlow(activity string, took time.Duration) bool {
	_, known := doing[activity]
	return known && !isTurn(activity) && took >= SlowAfter
}

// slow adds the slow steps between two times, the newest first, and those that are still running.
// They follow the failures, which may be the reason.
func (c *chain) slow(from, to time.Time) {
	for _, p := range c.history.Pending {
		if !p.Started || p.StartedAt.IsZero() || to.Before(c.Now) {
			continue
		}
		if took := c.Now.Sub(p.StartedAt); isSlow(p.Activity, took) {
			waits := ""
			if p.Awaits != "" {
				waits = fmt.Sprintf(" and waits for %s since %s", p.Awaits, clock(p.AwaitsSince))
			}
			c.add(StepSlow, p.StartedAt, nil, Temporal, "%s takes long: a worker has been executing it since %s%s", nameOf(p.Activity), clock(p.StartedAt), waits)
		}
	}
	for _, e := range slices.Backward(c.history.Events) {
		if e.Kind == StepWasSlow && isSlow(e.Activity, e.Took) && !e.At.Before(from) && !e.At.After(to) {
			c.add(StepSlow, e.At, nil, Temporal, "%s took %s", nameOf(e.Activity), e.Took.Round(time.Second))
		}
	}
}

// classify returns the code and the text of an event of a history; no code if it explains nothing.
func classify(e Event) (Code, string) {
	switch e.Kind {
	case AttemptFailed:
		code, text := e.Failure.classify(e.Activity)
		return code, text
	case TaskTimedOut:
		return WorkerLost, "a worker did not complete a task of the workflow in time" + because(e.Worker)
	case TaskFailed:
		return WorkflowFailed, "a task of the workflow failed: " + quoted(e.Failure.Message)
	case RunFailed:
		return WorkflowFailed, "the workflow failed: " + quoted(e.Failure.Message)
	case Terminated:
		return WorkflowTerminated, "the workflow was terminated in Temporal" + because(e.Reason)
	case CancelAsked:
		return CancelledInTemporal, "the cancellation of the workflow was requested in Temporal" + because(e.Reason)
	case Reset:
		return WorkflowReset, "the workflow was reset in Temporal" + because(e.Reason)
	case Signalled:
		if e.Sandbox != "" {
			return SandboxLost, "a worker reported the end of the sandbox: " + quoted(e.Sandbox)
		}
	}
	return "", ""
}

// classify names a failure of an attempt at an activity.
func (f Failure) classify(activity string) (Code, string) {
	what := nameOf(activity)
	switch f.Kind {
	case HeartbeatTimeout:
		return WorkerLost, fmt.Sprintf("the worker that executed %s was lost: its heartbeats ended", what)
	case StartTimeout:
		return NoWorker, fmt.Sprintf("no worker took %s in time", what)
	case OtherTimeout:
		return StepTimedOut, fmt.Sprintf("%s did not end in time", what)
	case Cancelled:
		return "", ""
	case Application:
	}
	message := quoted(f.Message)
	switch f.Type {
	case "HandOver":
		return WorkerStopped, fmt.Sprintf("the worker that executed %s stopped and gave it to another", what)
	case "SandboxLost", "PromptNotDelivered":
		return SandboxLost, fmt.Sprintf("the sandbox was lost during %s: %s", what, message)
	case "SandboxLimit":
		return SandboxLimit, "the provider ended the sandbox because of a limit: " + message
	case "DeliveryUnknown":
		return DeliveryUnknown, "the runner has lost the run: " + message
	case "GenerationSpent":
		return GenerationUnusable, "a sandbox could not be used: " + message
	case "BreakerOpen":
		return BreakerOpen, message
	case "Refused":
		return Refused, fmt.Sprintf("%s was refused: %s", what, message)
	case "QueueHeld":
		return QueueHeld, "the queue was held"
	case "NotHandedOver", "Fenced", "StaleWorkflow", "SessionMissing", "GaveWay":
		return "", ""
	}
	switch {
	case strings.Contains(f.Message, "the database is not available"), strings.Contains(f.Message, "the database refused"):
		return DatabaseUnavailable, fmt.Sprintf("Postgres did not answer during %s: %s", what, message)
	case strings.Contains(f.Message, "is locked by another transaction"):
		return SessionLocked, fmt.Sprintf("another transaction in Postgres had locked the session during %s: %s", what, message)
	case activity == "SaveBundle" || activity == "Checkpoint":
		return SnapshotFailed, "the snapshot failed: " + message
	case isTurn(activity):
		return RunnerUnreachable, "the worker did not reach the runner in the sandbox: " + message
	case activity == "CreateSandbox" || activity == "RestoreSandbox" || activity == "TerminateSandbox":
		return ProviderUnavailable, fmt.Sprintf("%s failed: %s", what, message)
	}
	return StepFailed, fmt.Sprintf("%s failed: %s", what, message)
}

// pending adds what the workflow waits for now.
func (c *chain) pending() {
	restoring := slices.ContainsFunc(c.history.Pending, func(p Pending) bool { return p.Activity == "RestoreSandbox" })
	for _, p := range c.history.Pending {
		switch {
		case restoring && p.Activity == runTurnWhenClaimed: // it waits for the restore too
		case p.Started && !p.HeartbeatAt.IsZero() && c.Now.Sub(p.HeartbeatAt) > silentAfter:
			c.add(WorkerSilent, p.HeartbeatAt, nil, Temporal, "the worker that executes %s has sent no heartbeat since %s", nameOf(p.Activity), clock(p.HeartbeatAt))
		case !p.Started && p.Failure == nil && c.Now.Sub(p.ScheduledAt) > noWorkerAfter:
			c.add(NoWorker, p.ScheduledAt, nil, Temporal, "no worker has taken %s since %s", nameOf(p.Activity), clock(p.ScheduledAt))
		}
	}
	if !c.history.TaskSince.IsZero() && c.Now.Sub(c.history.TaskSince) > noWorkerAfter {
		c.add(NoWorker, c.history.TaskSince, nil, Temporal, "no worker has taken the task of the workflow since %s", clock(c.history.TaskSince))
	}
}

// silentAfter is the time without heartbeats after which a worker is mentioned. It is shorter than
// any heartbeat timeout.
const silentAfter = 12 * time.Second

// noWorkerAfter is the waiting time after which a task is mentioned.
const noWorkerAfter = 5 * time.Second

// compare finds the disagreements of Postgres and Temporal. A change between the two reads can look
// like one: a workflow that is about to record a transition is one transition ahead.
func (c *chain) compare() {
	h, s := c.history, c.Session
	if h.Err != "" {
		c.add(TemporalUnavailable, time.Time{}, nil, Rows, "Temporal does not answer, so this is from Postgres alone: %s", quoted(h.Err))
		return
	}
	disagree := func(code Code, rows, temporal, format string, args ...any) {
		c.out.Disagreements = append(c.out.Disagreements, Disagreement{Code: code, Text: fmt.Sprintf(format, args...), Rows: rows, Temporal: temporal})
	}
	work := s.Queue.Processing > 0 || s.Queue.Queued > 0 && !s.Queue.Hold.Held() || len(s.Pending) > 0 || s.Status.HasSandbox() && s.Loaded
	if !h.Open && work && !s.Status.Final() {
		disagree(WorkflowNotOpen, string(s.Status), "no workflow is open",
			"the session is %s and has work, but its workflow is not open; the reconciler and the relay start it again", s.Status)
		return
	}
	if !h.Open {
		return
	}
	if c.WorkflowRun != "" && h.RunID != c.WorkflowRun && !s.Status.Final() {
		disagree(WorkflowReplaced, c.WorkflowRun, h.RunID, "the session was opened by another run of the workflow than the one that is open, which was reset or has just begun")
	}
	v := h.View
	switch {
	case v == nil:
		return
	case v.Status != s.Status && v.TransitionNo != s.TransitionNo:
		disagree(StatusDiffers, string(s.Status), string(v.Status), "Postgres has the session as %s (transition %d), its workflow as %s (transition %d)",
			s.Status, s.TransitionNo, v.Status, v.TransitionNo)
	case v.TransitionNo != s.TransitionNo:
		disagree(TransitionDiffers, fmt.Sprint(s.TransitionNo), fmt.Sprint(v.TransitionNo), "Postgres has %d transitions, the workflow %d", s.TransitionNo, v.TransitionNo)
	}
	if open := c.openRun(); !c.Attended && open != nil && v.RunID != "" && v.RunID != open.ID {
		disagree(RunDiffers, open.ID, v.RunID, "Postgres has the run %s open, the workflow executes %s", open.ID, v.RunID)
	}
}

func (c *chain) openRun() *Run {
	for i, r := range c.Runs {
		if r.Outcome == "" {
			return &c.Runs[i]
		}
	}
	return nil
}
