package turn

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Config is the configuration of an executor. Every field is required unless its comment says
// otherwise.
type Config struct {
	Store   Store
	Log     Log
	Agents  Agents
	Sandbox *sandbox.Provider
	Secrets Secrets
	Masks   Masks
	// Token returns the token of the links to the runner of a generation.
	Token func(ctx context.Context, sessionID string, generation int64) (string, error)
	// Changes wakes turns whose agent waits for an answer. Default: turns check for answers every
	// few seconds.
	Changes Changes
	// Links keeps links open between turns. Default: none is kept.
	Links *Links
	// InterruptedPause is the time between the report of a runner that it was interrupted while it had a run, and the end of
	// that run.
	InterruptedPause time.Duration
	// FlushTimeout bounds the end of a turn, in which its runner sends the rest of the transcripts.
	FlushTimeout time.Duration
	// ReadAhead bounds the bytes of agents' output that wait in memory for commits, over all turns
	// and in addition to a small share of each. Default 256 MiB.
	ReadAhead int64
	// NoTools disables the tools of overwinter for agents.
	NoTools bool
	// Prompted notifies the workflow of another session of a prompt that an agent has sent to that
	// session. Default: the relay notifies it a few seconds later.
	Prompted func(ctx context.Context, p session.Prompt)
	// Retried is called with the name of the agent for each retried request to a model. Default:
	// nothing is called.
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

// Log appends the events of runs.
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
	// Secrets returns the named secrets that are stored, by name.
	Secrets(ctx context.Context, names []string) (map[string]secret.Stored, error)
}

// Changes signals changes in a session's log that turns do not make, such as a prompt or an answer.
type Changes interface {
	// Watch returns a channel that receives a value when others have added to the session's log. A change may
	// be missed.
	Watch(sessionID string) (changed <-chan struct{}, stop func())
}

// Progress is notified of the steps of an attempt, by one goroutine.
type Progress interface {
	// Made reports that a step is done.
	Made()
	// Waiting reports that the attempt waits for the agent until the next step, without a limit.
	Waiting()
	// IsWaiting reports whether Waiting was called after the last Made.
	IsWaiting() bool
}

// Executor executes turns.
type Executor struct {
	Config
	readAhead *semaphore.Weighted
	paces     paces
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

// Request names a run, its sandbox and the attempt that executes it.
type Request struct {
	SessionID  string
	RunID      string
	Generation int64
	SandboxID  string
	Token      string    // of the attempt, with which Start was read
	Start      run.Start // the run's input, and the progress of earlier attempts
	// ParkAfter is the time after which a run that only waits for open questions is parked; 0 means
	// never.
	ParkAfter time.Duration
	// RefusedTo is the RefusedTo of the session's previous turn, if it was in the same sandbox; nil if
	// that is not known: connections that were refused before the prompt are then not recorded.
	RefusedTo *int64
	// Greeting is the result of Greet for the same run; nil if there is none. Run owns it.
	Greeting *Greeting
}

// Result is the progress of an attempt.
type Result struct {
	// End is the end of the turn; nil if it has none yet. It is committed, unless it is in Last.
	End *agent.TurnEnd
	// Last is the append of the last frames if they are not committed yet: the caller commits them with
	// the outcome of the run. If it does not, the next attempt reads them again. Nil if there is an
	// error.
	Last *eventlog.Append
	// MayHaveDelivered is false only if it is certain that no attempt at the run has delivered the
	// prompt to a runner.
	MayHaveDelivered bool
	// Parked reports that the run is parked and this attempt has ended.
	Parked bool
	// Segments are the end of the turn's transcripts. They are not stored yet: the caller stores
	// them with the outcome of the run, or with StoreSegments. Segments is empty if there is an
	// error.
	Segments []transcript.Segment
	// RefusedTo is the number up to which the refused connections of the sandbox are recorded; nil if
	// that is unknown.
	RefusedTo *int64
}

// Run makes one attempt at a run: it attaches to the runner, delivers the prompt if the runner does
// not have it and follows the frames to the end of the turn. The result is its progress, or nil if
// the stored state of the run could not be read. If there is an error although the turn has ended,
// the last lines of its transcripts may be missing.
func (x *Executor) Run(ctx context.Context, in Request, progress Progress) (*Result, error) {
	defer in.Greeting.Abandon()
	a, err := x.newAttempt(ctx, in, progress)
	if err != nil {
		return nil, err
	}
	if err = a.run(ctx); err != nil && a.end == nil {
		a.leave(ctx)
	}
	return &Result{
		End: a.end, MayHaveDelivered: a.mayHaveDelivered, Parked: a.parked, Segments: a.last, Last: a.lastAppend, RefusedTo: a.refusedTo,
	}, err
}

// pauseFor waits for d, or returns the error of the context.
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
