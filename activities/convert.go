package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// Interceptor converts the errors of all activities of a worker, including local activities: see
// converted. Requests of session workflows carry the workflow's run, so that a stale run is
// refused.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*Interceptor) InterceptActivity(ctx context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &inbound{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
}

func (i *inbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	result, err := i.Next.ExecuteActivity(withAwaited(byWorkflow(ctx)), in)
	return result, converted(err)
}

// byWorkflow returns the context of an activity with the workflow run that requests it. Turns have
// none: attempts at a run have their own order, and one in progress ends in its sandbox.
func byWorkflow(ctx context.Context) context.Context {
	info := activity.GetInfo(ctx)
	if info.WorkflowType == nil || info.WorkflowType.Name != contract.WorkflowName || isTurn(info.ActivityType.Name) {
		return ctx
	}
	return session.WithWorkflowRun(ctx, info.WorkflowExecution.RunID)
}

// isTurn reports whether an activity is one of [Turns].
func isTurn(activity string) bool { return activity == "RunTurn" || activity == "RunTurnWhenClaimed" }

// mixed is the type of an error that may be transient although a final error is joined to it.
const mixed = "Mixed"

// converted returns an activity's error in Temporal's form. Temporal looks at the outermost error
// only: a final error that an activity has wrapped would be retried without end, and the workflow
// would not recognize its kind. Joined errors are final only if each of them is, because a
// transient one is worth another attempt.
func converted(err error) error {
	if err == nil {
		return nil
	}
	switch e := err.(type) { //nolint:errorlint // Temporal sees the outermost error
	case *temporal.ApplicationError:
		return err
	case *turn.Error:
		return final(kinds[e.Kind], e.Err)
	}
	if kind := finalIn(err); kind != "" {
		return final(kind, err)
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		// The retries of local activities look at wrapped errors too.
		kind := app.Type()
		if IsFinal(app) {
			kind = mixed
		}
		return temporal.NewApplicationErrorWithCause(err.Error(), kind, err)
	}
	if turn.IsFinal(err) {
		return temporal.NewApplicationErrorWithCause(err.Error(), mixed, err)
	}
	return err
}

// kinds are the types of final errors of turns.
var kinds = map[turn.Kind]string{
	turn.Refused: Refused, turn.Fenced: Fenced, turn.SessionMissing: SessionMissing, turn.StaleWorkflow: StaleWorkflow,
	turn.DeliveryUnknown: DeliveryUnknown,
}

// finalIn returns the type of the error that makes err final; "" if err may be transient.
func finalIn(err error) string {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *temporal.ApplicationError:
		if IsFinal(e) {
			return e.Type()
		}
	case *turn.Error:
		return kinds[e.Kind]
	case interface{ Unwrap() []error }:
		first := ""
		for _, joined := range e.Unwrap() {
			kind := finalIn(joined)
			if kind == "" {
				return ""
			}
			if first == "" {
				first = kind
			}
		}
		return first
	case interface{ Unwrap() error }:
		if inner := errors.Unwrap(err); inner != nil {
			return finalIn(inner)
		}
	}
	return ""
}
