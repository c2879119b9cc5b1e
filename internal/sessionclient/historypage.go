package sessionclient

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// maxHistoryRuns bounds the runs of a workflow that are read, the newest first.
const maxHistoryRuns = 100

// historyCursor is a position in the history of a workflow.
type historyCursor struct {
	Run      string `json:"r"`
	Token    []byte `json:"t,omitempty"`
	Previous string `json:"p,omitempty"` // the run that was continued as this one
	Runs     int    `json:"n,omitempty"` // that are read
}

// HistoryPage reads a page of the history of a session's workflow: the newest run first, each run
// in order, across runs that have continued as new. It passes the payloads of events through mask.
// The error is session_not_found if there is no workflow, or retention has deleted it.
func (c *Client) HistoryPage(
	ctx context.Context, sessionID string, limit int, cursor string, mask func(json.RawMessage) json.RawMessage,
) (events []resource.HistoryEventJSON, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var at historyCursor
	if cursor != "" {
		if at, err = decodeHistoryCursor(cursor); err != nil {
			return nil, "", err
		}
	} else {
		d, err := c.temporal.DescribeWorkflowExecution(ctx, sessionID, "")
		if err = interpret(err); err != nil {
			return nil, "", err
		}
		at.Run = d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}
	page, err := c.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: c.namespace, Execution: &common.WorkflowExecution{WorkflowId: sessionID, RunId: at.Run},
		MaximumPageSize: int32(limit), NextPageToken: at.Token,
	})
	if err = interpret(err); err != nil {
		if failure.CodeOf(err) == failure.NoSession && cursor != "" && len(at.Token) == 0 {
			return nil, "", nil // retention has deleted the previous run
		}
		return nil, "", err
	}
	for _, e := range page.GetHistory().GetEvents() {
		if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
			at.Previous = started.GetContinuedExecutionRunId()
		}
		encoded, err := encodeEvent(ctx, e, mask)
		if err != nil {
			return nil, "", err
		}
		events = append(events, resource.HistoryEventJSON{RunID: at.Run, Event: encoded})
	}
	return events, at.after(page.GetNextPageToken()), nil
}

// after returns the cursor of the next page; empty if there is none.
func (at historyCursor) after(token []byte) string {
	if at.Token = token; len(token) == 0 {
		if at.Runs++; at.Previous == "" || at.Runs == maxHistoryRuns {
			return ""
		}
		at.Run, at.Previous = at.Previous, ""
	}
	encoded, err := json.Marshal(at)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

func decodeHistoryCursor(cursor string) (at historyCursor, err error) {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err != nil || at.Run == "" {
		return at, failure.Errorf(failure.Invalid, "the cursor is not one of this list")
	}
	return at, nil
}

// encodeEvent encodes an event with masked payloads.
func encodeEvent(ctx context.Context, e *history.HistoryEvent, mask func(json.RawMessage) json.RawMessage) (json.RawMessage, error) {
	err := proxy.VisitPayloads(ctx, e, proxy.VisitPayloadsOptions{Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*common.Payload) ([]*common.Payload, error) {
		for _, p := range payloads {
			if json.Valid(p.GetData()) {
				p.Data = mask(p.GetData())
			}
		}
		return payloads, nil
	}})
	if err != nil {
		return nil, &failure.Error{Code: failure.Internal, Message: "the history cannot be read", Err: err}
	}
	encoded, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(e)
	if err != nil {
		return nil, &failure.Error{Code: failure.Internal, Message: "the history cannot be encoded", Err: err}
	}
	return mask(encoded), nil // messages of failures are not in payloads
}
