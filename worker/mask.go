package worker

import (
	"context"
	"fmt"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
)

// masking masks the errors of activities, which may quote output of programs in sandboxes and are
// stored by Temporal and in the session's row.
func (w *Worker) masking() []interceptor.WorkerInterceptor {
	if w.config.Mask == nil {
		return nil
	}
	return []interceptor.WorkerInterceptor{&errorMasker{mask: w.config.Mask}}
}

type errorMasker struct {
	interceptor.WorkerInterceptorBase
	mask func(string) string
}

// InterceptActivity masks the error of each activity.
func (m *errorMasker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityMasker{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, mask: m.mask}
}

type activityMasker struct {
	interceptor.ActivityInboundInterceptorBase
	mask func(string) string
}

// ExecuteActivity replaces an error whose text contains a secret by one of the same kind without
// its causes.
func (m *activityMasker) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	out, err := m.Next.ExecuteActivity(ctx, in)
	return out, maskError(err, m.mask)
}

func maskError(err error, mask func(string) string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	masked := mask(text)
	if masked == text {
		return err
	}
	kind, options := strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), temporal.ApplicationErrorOptions{}
	if e, ok := err.(*temporal.ApplicationError); ok { //nolint:errorlint // Temporal ignores causes too
		kind = e.Type()
		options.NonRetryable, options.NextRetryDelay, options.Category = e.NonRetryable(), e.NextRetryDelay(), e.Category()
		masked = mask(e.Message())
	}
	return temporal.NewApplicationErrorWithOptions(masked, kind, options)
}
