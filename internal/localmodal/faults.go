package localmodal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault makes calls of a method slow, fail, or lose their answer. For tests.
type Fault struct {
	// Method is the gRPC method's last part, such as SandboxCreateV2.
	Method string
	// Code is what the caller gets; codes.OK lets the call succeed.
	Code codes.Code
	// N is how many calls are struck; zero means one.
	N int
	// After says that the work is done and only the answer lost.
	After bool
	// Delay holds the call up before anything else.
	Delay time.Duration
	// RetryAfter, if positive, asks the SDK to wait that long and try again, as a server does that
	// throttles.
	RetryAfter time.Duration
}

// faults are waiting to strike, in the order in which they were injected.
type faults struct {
	mu      sync.Mutex
	waiting []Fault
}

func (f *faults) add(fault Fault) {
	fault.N = max(fault.N, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, fault)
}

// take returns the fault that strikes this call, if any.
func (f *faults) take(method string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.waiting, func(w Fault) bool { return w.Method == method })
	if i < 0 {
		return Fault{}, false
	}
	fault := f.waiting[i]
	f.waiting[i].N--
	if f.waiting[i].N == 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	return fault, true
}

// strike does what the fault says around a call.
func (f Fault) strike(ctx context.Context, call func() error) error {
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Code == codes.OK {
		return call()
	}
	if !f.After {
		return f.err()
	}
	_ = call() // its answer is what gets lost
	return f.err()
}

func (f Fault) err() error {
	st := status.New(f.Code, "injected fault")
	if f.RetryAfter <= 0 {
		return st.Err()
	}
	st, err := st.WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(f.RetryAfter.Seconds())}.Build())
	if err != nil {
		return fmt.Errorf("inject fault: %w", err)
	}
	return st.Err()
}
