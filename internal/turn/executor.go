package turn

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Config is the configuration of an executor. Every field is required unless it says otherwise.
type Config struct {
	Store   Store
	Log     Log
	Agents  Agents
	Sandbox *sandbox.Provider
	Secrets Secrets
	Masks   Masks
	// Token returns the token of the links to the runner of a generation.
	Token func(ctx context.Context, sessionID string, generation int64) (string, error)
	// Changes wakes turns whose agent waits for an answer. Default: they look every few seconds.
	Changes Changes
	// Links keeps links open between turns. Default: none is kept.
	Links *Links
	// InterruptedPause is the time between the report of a runner that it was interrupted while it had a run, and the end of
	// that run.
	InterruptedPause time.Duration
	// FlushTimeout bounds the end of a turn, in which its runner sends the rest of the transcripts.
	FlushTimeout time.Duration
	// ReadAhead is how many bytes of what agents have said may wait in memory for commits, of all
	// turns together and beyond a small share of each. Default 256 MiB.
	ReadAhead int64
	// NoTools: agents are not offered the tools of overwinter.
	NoTools bool
	// Prompted notifies the workflow of another session of a prompt that an agent has sent it. Default: a relay does, seconds later.
	Prompted func(ctx context.Context, p session.Prompt)
	// Retried is called with the agent for each request to a model that was sent again. Default: nothing is called.
	Retried func(agent string)
	Logger  *slog.Logger
}

// Store is the part of the store that turns use. Every method may be called again with the same arguments.
type Store interface {
	attemptStore
	questionStore
	fileStore
	imageStore
	attachmentStore
	messageStore
	settleStore
	steerStore
}

// Log is where the events of runs go.
type Log interface {
	// Append returns when the events are committed. eventlog.ErrFenced means that
	// a newer generation or attempt has taken over and nothing was written.
	Append(ctx context.Context, a eventlog.Append) error
}

// Agents finds the adapter of an agent.
type Agents interface {
	Get(name string) (agent.Adapter, error)
}

// Secrets opens the installation's secrets.
type Secrets interface {
	// Secrets returns those of the named secrets that are stored, by name.
	Secrets(ctx context.Context, names []string) (map[string]secret.Stored, error)
}

// Changes signals when something has been written about a session, such as an answer.
type Changes interface {
	// Watch returns a channel that is sent to when the session's log has grown. It may miss one.
	Watch(sessionID string) (changed <-chan struct{}, stop func())
}

// Progress is notified of the steps of an attempt, by one goroutine.
type Progress interface {
	// Made: a step is done.
	Made()
	// Waiting: until the next step the attempt waits for the agent, which may take as long as it likes.
	Waiting()
	// IsWaiting reports which of them was called last.
	IsWaiting() bool
}

// Executor executes turns.
type Executor struct {
	Config
	readAhead *semaphore.Weighted
	linked    atomic.Int64 // turns that have a link
}

// New returns an executor. Its turns share the memory for frames that are read ahead.
func New(c Config) *Executor {
	if c.ReadAhead == 0 {
		c.ReadAhead = defaultReadAhead
	}
	if c.Retried == nil {
		c.Retried = func(string) {}
	}
	return &Executor{Config: c, readAhead: semaphore.NewWeighted(max(c.ReadAhead, 2*runner.MaxLinkMessage))}
}

// Request names a run, the sandbox that it works in and the attempt that has it.
type Request struct {
	SessionID  string
	RunID      string
	Generation int64
	SandboxID  string
	Token      string    // of the attempt, with which Start was read
	Start      run.Start // what the run needs, and where the attempts before have got to
	// ParkAfter is how long nothing but open questions may keep the run busy before it is parked; 0 for ever.
	ParkAfter time.Duration
}

// Result is how far an attempt got.
type Result struct {
	// End is the end of the turn, committed; nil if it has none yet.
	End *agent.TurnEnd
	// MayHaveDelivered is false only if it is certain that no attempt at the run has handed the prompt to a runner.
	MayHaveDelivered bool
	// Parked: the run is parked, and this attempt is over.
	Parked bool
}

// Run makes one attempt at a run: it attaches to the runner, delivers the prompt if the runner does not have it and follows
// the frames to the end of the turn. The result is how far it got; nil if what is stored of the run could not be read. A turn
// that has ended may have an error too: then the last lines of its transcripts may be missing.
func (x *Executor) Run(ctx context.Context, in Request, progress Progress) (*Result, error) {
	a, err := x.newAttempt(ctx, in, progress)
	if err != nil {
		return nil, err
	}
	if err = a.run(ctx); err != nil && a.end == nil {
		a.leave(ctx)
	}
	return &Result{End: a.end, MayHaveDelivered: a.mayHaveDelivered, Parked: a.parked}, err
}

// pauseFor waits; the error is that of the context.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
