package activities

import (
	"context"
	"sync/atomic"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

// awaited names the current wait of an attempt at an activity. The attempt's heartbeats report it,
// so that an explanation can name a provider that does not answer while the call hangs.
type awaited struct {
	now atomic.Pointer[contract.Awaited]
}

type awaitedKey struct{}

// awaitedImage is the first wait of a restore: whether the snapshot still exists.
const awaitedImage = "the provider to look for the snapshot"

// withAwaited returns the context of an attempt that may report its waits.
func withAwaited(ctx context.Context) context.Context {
	return context.WithValue(ctx, awaitedKey{}, new(awaited))
}

// await records the current wait of the attempt, until done is called. Only the last wait is
// recorded.
func await(ctx context.Context, what string) (done func()) {
	a, ok := ctx.Value(awaitedKey{}).(*awaited)
	if !ok {
		return func() {}
	}
	record := &contract.Awaited{What: what, Since: time.Now().UTC()}
	a.now.Store(record)
	return func() { a.now.CompareAndSwap(record, nil) }
}

// awaitedDetails returns the details of a heartbeat; nil while the attempt does not wait.
func awaitedDetails(ctx context.Context) *common.Payloads {
	a, ok := ctx.Value(awaitedKey{}).(*awaited)
	if !ok {
		return nil
	}
	now := a.now.Load()
	if now == nil {
		return nil
	}
	details, err := converter.GetDefaultDataConverter().ToPayloads(*now)
	if err != nil { // only the explanation lacks this detail
		return nil
	}
	return details
}
