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

// Fault makes calls of a method slow, makes them fail, or drops their responses. For tests.
type Fault struct {
	// Method is the last part of the gRPC method's name, such as SandboxCreateV2.
	Method string
	// Code is the code that the caller gets; codes.OK lets the call succeed.
	Code codes.Code
	// N is the number of affected calls; zero means one.
	N int
	// After means that the call is executed and only its response is lost.
	After bool
	// Delay delays the call before anything else.
	Delay time.Duration
	// RetryAfter, if positive, makes the SDK retry after that time, like a server that throttles.
	RetryAfter time.Duration
}

// faults are the pending faults, in the order in which they were injected.
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

// take returns the fault for this call, if any.
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

// apply applies the fault to a call.
func (f Fault) apply(ctx context.Context, call func() error) error {
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
	_ = call() // its response is lost
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
