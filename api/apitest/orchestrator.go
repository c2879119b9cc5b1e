package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Orchestrator notes what it is told.
type Orchestrator struct {
	mu   sync.Mutex
	told []string

	// Change these in Set alone.
	Err   error
	Hang  bool // until the caller gives up
	Panic any
	View  string // the answer of State
	// OnRing is called with every ring, if it is there: a workflow could begin its work.
	OnRing func(sessionID, promptID string)
}

func (o *Orchestrator) tell(ctx context.Context, format string, args ...any) error {
	o.mu.Lock()
	o.told = append(o.told, fmt.Sprintf(format, args...))
	err, hang, p := o.Err, o.Hang, o.Panic
	o.mu.Unlock()
	if p != nil {
		panic(p)
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// Set changes how it behaves.
func (o *Orchestrator) Set(change func(*Orchestrator)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// Heard returns what was told since it was last asked.
func (o *Orchestrator) Heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	told := o.told
	o.told = nil
	return told
}

// Ring notes the call.
func (o *Orchestrator) Ring(ctx context.Context, id, promptID string, ordinal int64) error {
	if err := o.tell(ctx, "ring %s %s %d", id, promptID, ordinal); err != nil {
		return err
	}
	o.mu.Lock()
	ring := o.OnRing
	o.mu.Unlock()
	if ring != nil {
		ring(id, promptID)
	}
	return nil
}

// Wake notes the call.
func (o *Orchestrator) Wake(ctx context.Context, id string) error {
	return o.tell(ctx, "wake %s", id)
}

// Hibernate notes the call.
func (o *Orchestrator) Hibernate(ctx context.Context, id string, force bool) error {
	return o.tell(ctx, "hibernate %s %t", id, force)
}

// DropSandbox notes the call.
func (o *Orchestrator) DropSandbox(ctx context.Context, id string, force bool) error {
	return o.tell(ctx, "drop %s %t", id, force)
}

// Restart notes the call.
func (o *Orchestrator) Restart(ctx context.Context, id string, force bool) error {
	return o.tell(ctx, "restart %s %t", id, force)
}

// Sync notes the call.
func (o *Orchestrator) Sync(ctx context.Context, id string) error {
	return o.tell(ctx, "sync %s", id)
}

// Revert notes the call.
func (o *Orchestrator) Revert(ctx context.Context, id, promptID string, force bool) error {
	return o.tell(ctx, "revert %s %s %t", id, promptID, force)
}

// Stop notes the call.
func (o *Orchestrator) Stop(ctx context.Context, id string) error {
	return o.tell(ctx, "stop %s", id)
}

// Abort notes the call.
func (o *Orchestrator) Abort(ctx context.Context, id string) error {
	return o.tell(ctx, "abort %s", id)
}

// Recover notes the call.
func (o *Orchestrator) Recover(ctx context.Context, id string) error {
	return o.tell(ctx, "recover %s", id)
}

// Set changes how it behaves.

// Settings notes the call.
func (o *Orchestrator) Settings(ctx context.Context, id string, d time.Duration) error {
	return o.tell(ctx, "settings %s %s", id, d)
}

// State notes the call.
func (o *Orchestrator) State(ctx context.Context, id string) (json.RawMessage, error) {
	if err := o.tell(ctx, "state %s", id); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return json.RawMessage(o.View), nil
}

// Ping notes the call.
func (o *Orchestrator) Ping(ctx context.Context) error { return o.tell(ctx, "ping") }
