package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// Signaler records its calls.
type Signaler struct {
	mu   sync.Mutex
	sent []string

	// Change these fields only in Set.
	Err   error
	Hang  bool // calls hang until the caller's context ends or Until is closed
	Until <-chan struct{}
	Panic any
	View  string // the answer of State
	Past  why.History
	Pages [][]resource.HistoryEventJSON // the answers of HistoryPage
	// OnPrompt, if set, is called with every signal for a prompt.
	OnPrompt func(sessionID, promptID string)
	// OnCommands, if set, is called with every signal of commands and of a stop.
	OnCommands func(sessionID string)
}

func (o *Signaler) record(ctx context.Context, format string, args ...any) error {
	o.mu.Lock()
	o.sent = append(o.sent, fmt.Sprintf(format, args...))
	err, hang, until, p := o.Err, o.Hang, o.Until, o.Panic
	o.mu.Unlock()
	if p != nil {
		panic(p)
	}
	if hang {
		select {
		case <-until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// Set changes the behavior of the signaler.
func (o *Signaler) Set(change func(*Signaler)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// TakeCalls returns the calls since the previous TakeCalls.
func (o *Signaler) TakeCalls() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent := o.sent
	o.sent = nil
	return sent
}

// SignalPrompt records the call.
func (o *Signaler) SignalPrompt(ctx context.Context, id, promptID string, ordinal int64) error {
	if err := o.record(ctx, "prompt %s %s %d", id, promptID, ordinal); err != nil {
		return err
	}
	o.mu.Lock()
	onPrompt := o.OnPrompt
	o.mu.Unlock()
	if onPrompt != nil {
		onPrompt(id, promptID)
	}
	return nil
}

// SignalAttended records the call.
func (o *Signaler) SignalAttended(ctx context.Context, id string, prompts []session.QueuedPrompt) error {
	named := make([]string, len(prompts))
	for i, p := range prompts {
		named[i] = fmt.Sprintf("{%s %d}", p.ID, p.Ordinal)
	}
	return o.record(ctx, "attended %s %v", id, named)
}

// SignalCommands records the call.
func (o *Signaler) SignalCommands(ctx context.Context, id string) error {
	return o.commands(id, o.record(ctx, "notify %s", id))
}

// SignalStop records the call.
func (o *Signaler) SignalStop(ctx context.Context, id string) error {
	return o.commands(id, o.record(ctx, "stop %s", id))
}

func (o *Signaler) commands(id string, err error) error {
	o.mu.Lock()
	onCommands := o.OnCommands
	o.mu.Unlock()
	if err == nil && onCommands != nil {
		onCommands(id)
	}
	return err
}

// SignalSettings records the call.
func (o *Signaler) SignalSettings(ctx context.Context, id string, d time.Duration) error {
	return o.record(ctx, "settings %s %s", id, d)
}

// State records the call.
func (o *Signaler) State(ctx context.Context, id string) (json.RawMessage, error) {
	if err := o.record(ctx, "state %s", id); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return json.RawMessage(o.View), nil
}

// History records the call and returns Past, or the error.
func (o *Signaler) History(ctx context.Context, id string) why.History {
	if err := o.record(ctx, "history %s", id); err != nil {
		return why.History{Err: err.Error()}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Past
}

// HistoryPage records the call and returns Pages, one by one.
func (o *Signaler) HistoryPage(
	ctx context.Context, id string, limit int, cursor string, mask func(json.RawMessage) json.RawMessage,
) (events []resource.HistoryEventJSON, next string, err error) {
	if err := o.record(ctx, "history %s %d %s", id, limit, cursor); err != nil {
		return nil, "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(cursor) // the length is the number of earlier pages
	if n >= len(o.Pages) {
		return nil, "", nil
	}
	for _, e := range o.Pages[n] {
		events = append(events, resource.HistoryEventJSON{RunID: e.RunID, Event: mask(e.Event)})
	}
	if n+1 < len(o.Pages) {
		next = cursor + "x"
	}
	return events, next, nil
}

// Ping records the call.
func (o *Signaler) Ping(ctx context.Context) error { return o.record(ctx, "ping") }
