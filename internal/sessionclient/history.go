package sessionclient

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/overwinter-dev/overwinter/internal/contract"
	fault "github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// maxHistoryPages bounds the requests to Temporal for one explanation, because pages and runs may
// be short.
const maxHistoryPages = 8

// History reads the events that explain a session from the history of its workflow, the newest
// first, across runs that have continued as new. It never fails: the result reports parts that
// could not be read.
func (c *Client) History(ctx context.Context, sessionID string) why.History {
	var h why.History
	described, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d, err := c.temporal.DescribeWorkflowExecution(described, sessionID, "")
	if err = interpret(err); fault.CodeOf(err) == fault.NoSession {
		return h // no workflow was ever started, or retention has deleted it
	} else if err != nil {
		h.Err = err.Error()
		return h
	}
	info := d.GetWorkflowExecutionInfo()
	h.Open = info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	h.RunID, h.StartedAt = info.GetExecution().GetRunId(), info.GetStartTime().AsTime()
	for _, p := range d.GetPendingActivities() {
		h.Pending = append(h.Pending, pendingOf(p))
	}
	attempts := attemptsOf(d.GetPendingActivities())
	if task := d.GetPendingWorkflowTask(); task.GetState() == enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED {
		h.TaskSince = task.GetScheduledTime().AsTime()
	}
	if err := c.readHistory(ctx, sessionID, &h); err != nil {
		h.Err = err.Error()
		return h
	}
	h.Events = append(slices.Concat(c.endedByHand(ctx, sessionID), h.Events), attempts...)
	if h.Open && h.TaskSince.IsZero() {
		if encoded, err := c.State(ctx, sessionID); err == nil {
			var v contract.StateView
			if json.Unmarshal(encoded, &v) == nil {
				h.View = &why.View{Status: v.Status, TransitionNo: v.TransitionNo, RunID: v.RunID, Doing: v.Doing}
			}
		}
	}
	return h
}

// readHistory reads pages backwards, from the newest run on.
func (c *Client) readHistory(ctx context.Context, sessionID string, h *why.History) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout)
	defer cancel()
	var events []*history.HistoryEvent // newest first
	runID, token := h.RunID, []byte(nil)
	for page := 0; runID != ""; page++ {
		if page == maxHistoryPages || len(events) >= why.MaxHistoryEvents {
			h.Truncated = true
			break
		}
		response, err := c.temporal.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
			Namespace: c.namespace, Execution: &common.WorkflowExecution{WorkflowId: sessionID, RunId: runID},
			MaximumPageSize: why.HistoryPageSize, NextPageToken: token,
		})
		if err = interpret(err); err != nil {
			if fault.CodeOf(err) == fault.NoSession && len(events) > 0 {
				break // the run before was deleted
			}
			return err
		}
		read := response.GetHistory().GetEvents()
		events = append(events, read...)
		if token = response.GetNextPageToken(); len(token) > 0 {
			continue
		}
		if runID = ""; len(read) > 0 {
			runID = read[len(read)-1].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
		}
	}
	if len(events) > why.MaxHistoryEvents {
		events, h.Truncated = events[:why.MaxHistoryEvents], true
	}
	h.Read = len(events)
	slices.Reverse(events)
	h.Events = notable(events)
	return nil
}

// maxClosedRuns bounds the closed runs of a workflow that are examined.
const maxClosedRuns = 5

// endedByHand returns the ends of earlier runs that were terminated or failed, whose histories have
// no next run. It depends on Temporal's list of workflows, which may lag behind, and omits
// unreadable runs.
func (c *Client) endedByHand(ctx context.Context, sessionID string) (out []why.Event) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.temporal.WorkflowService().ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: c.namespace, PageSize: maxClosedRuns,
		Query: "WorkflowId = '" + sessionID + "' AND ExecutionStatus IN ('Terminated', 'Failed')",
	})
	if err != nil {
		return nil
	}
	for _, run := range slices.Backward(list.GetExecutions()) {
		last, err := c.temporal.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
			Namespace: c.namespace, Execution: run.GetExecution(), MaximumPageSize: 1,
		})
		if err != nil {
			return out
		}
		out = append(out, notable(last.GetHistory().GetEvents())...)
	}
	return out
}

// notable returns the events that explain something, oldest first.
func notable(events []*history.HistoryEvent) (out []why.Event) {
	names, workers, started := map[int64]string{}, map[int64]string{}, map[int64]time.Time{}
	failed := func(e *history.HistoryEvent, scheduled int64, attempt int32, worker string, f *failure.Failure) {
		if f != nil {
			out = append(out, why.Event{
				At: e.GetEventTime().AsTime(), Kind: why.AttemptFailed, Activity: names[scheduled], Attempt: attempt, Worker: worker, Failure: failureOf(f),
			})
		}
	}
	for _, e := range events {
		at := e.GetEventTime().AsTime()
		switch a := e.GetAttributes().(type) {
		case *history.HistoryEvent_ActivityTaskScheduledEventAttributes:
			names[e.GetEventId()] = a.ActivityTaskScheduledEventAttributes.GetActivityType().GetName()
		case *history.HistoryEvent_ActivityTaskStartedEventAttributes: // written when the activity ends, with the failure of the previous attempt
			s := a.ActivityTaskStartedEventAttributes
			failed(e, s.GetScheduledEventId(), s.GetAttempt(), "", s.GetLastFailure())
			started[s.GetScheduledEventId()] = at
		case *history.HistoryEvent_ActivityTaskCompletedEventAttributes:
			scheduled := a.ActivityTaskCompletedEventAttributes.GetScheduledEventId()
			if from, ok := started[scheduled]; ok && at.Sub(from) >= why.SlowAfter {
				out = append(out, why.Event{At: at, Kind: why.StepWasSlow, Activity: names[scheduled], Took: at.Sub(from)})
			}
		case *history.HistoryEvent_ActivityTaskFailedEventAttributes:
			s := a.ActivityTaskFailedEventAttributes
			failed(e, s.GetScheduledEventId(), 0, s.GetIdentity(), s.GetFailure())
		case *history.HistoryEvent_ActivityTaskTimedOutEventAttributes:
			s := a.ActivityTaskTimedOutEventAttributes
			failed(e, s.GetScheduledEventId(), 0, "", s.GetFailure())
		case *history.HistoryEvent_MarkerRecordedEventAttributes: // a record within the workflow's task
			failed(e, 0, 0, "", a.MarkerRecordedEventAttributes.GetFailure())
		case *history.HistoryEvent_WorkflowTaskStartedEventAttributes:
			workers[e.GetEventId()] = a.WorkflowTaskStartedEventAttributes.GetIdentity()
		case *history.HistoryEvent_WorkflowTaskTimedOutEventAttributes:
			out = append(out, why.Event{At: at, Kind: why.TaskTimedOut, Worker: workers[a.WorkflowTaskTimedOutEventAttributes.GetStartedEventId()]})
		case *history.HistoryEvent_WorkflowTaskFailedEventAttributes:
			s := a.WorkflowTaskFailedEventAttributes
			if s.GetCause() == enums.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW {
				out = append(out, why.Event{At: at, Kind: why.Reset, Reason: s.GetFailure().GetMessage()})
			} else if s.GetCause() == enums.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE {
				out = append(out, why.Event{At: at, Kind: why.TaskFailed, Failure: failureOf(s.GetFailure())})
			}
		case *history.HistoryEvent_WorkflowExecutionSignaledEventAttributes:
			out = append(out, signalOf(at, a.WorkflowExecutionSignaledEventAttributes))
		case *history.HistoryEvent_WorkflowExecutionTerminatedEventAttributes:
			out = append(out, why.Event{At: at, Kind: why.Terminated, Reason: a.WorkflowExecutionTerminatedEventAttributes.GetReason()})
		case *history.HistoryEvent_WorkflowExecutionCancelRequestedEventAttributes:
			out = append(out, why.Event{At: at, Kind: why.CancelAsked, Reason: a.WorkflowExecutionCancelRequestedEventAttributes.GetCause()})
		case *history.HistoryEvent_WorkflowExecutionFailedEventAttributes:
			out = append(out, why.Event{At: at, Kind: why.RunFailed, Failure: failureOf(a.WorkflowExecutionFailedEventAttributes.GetFailure())})
		}
	}
	return out
}

// signalOf reads only the reason of an ended sandbox from a signal.
func signalOf(at time.Time, s *history.WorkflowExecutionSignaledEventAttributes) why.Event {
	e := why.Event{At: at, Kind: why.Signalled, Signal: s.GetSignalName()}
	if e.Signal != contract.SignalSandbox {
		return e
	}
	var ended contract.SandboxSignal
	if converter.GetDefaultDataConverter().FromPayloads(s.GetInput(), &ended) == nil {
		e.Sandbox, e.Generation = ended.Reason, ended.Generation
	}
	return e
}

// maxMessage bounds the message of a failure, in bytes.
const maxMessage = 2000

func failureOf(f *failure.Failure) why.Failure {
	message := f.GetMessage()
	out := why.Failure{Kind: why.Application, Type: f.GetApplicationFailureInfo().GetType(), Message: message[:min(len(message), maxMessage)]}
	switch {
	case f.GetTimeoutFailureInfo() != nil:
		switch f.GetTimeoutFailureInfo().GetTimeoutType() {
		case enums.TIMEOUT_TYPE_HEARTBEAT:
			out.Kind = why.HeartbeatTimeout
		case enums.TIMEOUT_TYPE_SCHEDULE_TO_START:
			out.Kind = why.StartTimeout
		default:
			out.Kind = why.OtherTimeout
		}
	case f.GetCanceledFailureInfo() != nil:
		out.Kind = why.Cancelled
	case f.GetActivityFailureInfo() != nil && f.GetCause() != nil:
		return failureOf(f.GetCause())
	}
	return out
}

// attemptsOf returns the failed attempts of pending activities, which are not in the history yet.
func attemptsOf(pending []*workflow.PendingActivityInfo) (out []why.Event) {
	for _, p := range pending {
		at := p.GetLastAttemptCompleteTime()
		if at == nil {
			at = p.GetLastStartedTime()
		}
		if f := p.GetLastFailure(); f != nil && at != nil {
			out = append(out, why.Event{At: at.AsTime(), Kind: why.AttemptFailed, Activity: p.GetActivityType().GetName(), Attempt: p.GetAttempt(), Failure: failureOf(f)})
		}
	}
	return out
}

func pendingOf(p *workflow.PendingActivityInfo) why.Pending {
	out := why.Pending{
		Activity: p.GetActivityType().GetName(), Attempt: p.GetAttempt(), Started: p.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED,
		ScheduledAt: p.GetScheduledTime().AsTime(),
	}
	if at := p.GetLastHeartbeatTime(); at != nil {
		out.HeartbeatAt = at.AsTime()
	}
	if at := p.GetLastStartedTime(); at != nil {
		out.StartedAt = at.AsTime()
	}
	// Until an attempt sends its first heartbeat, the details are those of the previous attempt.
	var now contract.Awaited
	if d := p.GetHeartbeatDetails(); d != nil && converter.GetDefaultDataConverter().FromPayloads(d, &now) == nil && !now.Since.Before(out.StartedAt) {
		out.Awaits, out.AwaitsSince = now.What[:min(len(now.What), maxMessage)], now.Since
	}
	if f := p.GetLastFailure(); f != nil {
		failed := failureOf(f)
		out.Failure = &failed
	}
	return out
}
