package activities

import (
	"context"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/metrics"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// Config is the configuration of the activities. Every field without a documented default is
// required.
type Config struct {
	Store    Store
	Log      Log
	Agents   Agents
	Sandbox  *sandbox.Provider
	Image    Image
	Signaler Signaler
	// Changes wakes turns whose agent waits for an answer. Default: they look every few seconds.
	Changes Changes
	// Secrets opens the installation's secrets. Default: there are none.
	Secrets Secrets
	// Masks masks the values of stored secrets in agents' output. Default: nothing is masked.
	Masks Masks
	// Links keeps links open between turns. Default: none is kept.
	Links *turn.Links
	// Runner replaces a runner of another build in a snapshot. Default: every snapshot keeps its
	// runner.
	Runner Runner
	// Queue is the task queue of this installation's workflows. Workflows on another queue move to
	// it when they continue as new. Default: they keep their queue.
	Queue string
	// PublicURL is the address of the API for people, used in links in Temporal's UI. Default:
	// there are no links.
	PublicURL string
	// Keys are the installation's, the same on every worker.
	Keys Keys
	// SandboxTimeout is how long the provider lets a sandbox live. Default 24h,
	// which is the provider's limit.
	SandboxTimeout time.Duration
	// SnapshotTimeout bounds one snapshot. Default 5m.
	SnapshotTimeout time.Duration
	// RunnerGrace is how long a restore waits for the runner of a running sandbox with unsaved
	// work. After that, its files are saved without the runner. Default 1m.
	RunnerGrace time.Duration
	// ConfirmPause is the time between two queries for an image that was not found. Default 2s.
	ConfirmPause time.Duration
	// ImageSoon is how long the preparation of an image may take before the session reports it as a step of its start: most exist
	// already. Default 1s.
	ImageSoon time.Duration
	// InterruptedPause is the time between the report of a runner that it was interrupted while it
	// had a run, and the end of that run: a forged runner can report it for each run, and the
	// policy of a prompt may be to run it again. Default 2s.
	InterruptedPause time.Duration
	// FlushTimeout bounds the end of a turn, in which its runner sends the rest of the transcripts. Default 2m.
	FlushTimeout time.Duration
	// Resolve looks up a host that a sandbox could not resolve. A host that does not exist is an
	// error of the session; a DNS server that does not answer may recover. Default: the resolver of
	// this process.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// SetupTimeout bounds a session's setup script, in whole seconds. Default 10m.
	SetupTimeout time.Duration
	// TurnStall is how long the loop of a turn may make no progress before its attempt is
	// handed over. Waiting for the agent is progress. Default 1m.
	TurnStall time.Duration
	// Attend is how long a turn attends its session after its end, to claim the next prompt by
	// itself. It needs Changes. Default: no attendance.
	Attend time.Duration
	// ParkAfter is the time after which a session hibernates if its turn only waits for open
	// questions. Default: never.
	ParkAfter time.Duration
	// NoTools is set if agents are not offered the tools of overwinter. Default: they are.
	NoTools bool
	// Versioned is set if workflows are pinned to the build of this worker. Default: they are not.
	Versioned bool
	// Shutdown is set when the installation stops with this worker. Default: it does not.
	Shutdown *Shutdown
	// MaxTurns is how many turns run on this worker at once. Attendants leave some room for turns. Default 1000.
	MaxTurns int
	// ReadAhead bounds the bytes of agents' output that wait in memory for commits, over all turns
	// and in addition to a small share of each. Default 256 MiB.
	ReadAhead int64
	// OrphanAge is how old a sandbox, or a snapshot, without an owner must be before the reconciler
	// ends it. Default 1m for sandboxes; snapshots wait an hour.
	OrphanAge time.Duration
	// CallTimeout bounds each call of the reconciler that ends a sandbox or asks about one. Default 15s.
	CallTimeout time.Duration
	// Metrics count and time the activities. Default: unregistered metrics.
	Metrics *metrics.Worker
	Logger  *slog.Logger
}

// Agents finds the adapter of an agent.
type Agents interface {
	Get(name string) (agent.Adapter, error)
}

// Image prepares the image of an agent's sandboxes and returns its id. A prepared image is found
// again.
type Image interface {
	Prepare(ctx context.Context, agentName string) (string, error)
}

// Secrets opens the installation's secrets.
type Secrets interface {
	// Secrets returns the named secrets that are stored, by name.
	Secrets(ctx context.Context, names []string) (map[string]secret.Stored, error)
}

// Masks knows how to mask the stored secrets.
type Masks interface {
	// Masker returns the masker for the secrets that are stored now.
	Masker(ctx context.Context) (*secret.Masker, error)
}

type noMasks struct{}

func (noMasks) Masker(context.Context) (*secret.Masker, error) { return nil, nil }

// Keys are the keys that the tokens of runner links are derived from.
type Keys interface {
	// KeyID returns the id of the key for new sandboxes.
	KeyID() string
	// LinkKey returns the key with an id; "" is the key of releases without key ids.
	LinkKey(id string) ([]byte, error)
}

type noSecrets struct{}

func (noSecrets) Secrets(context.Context, []string) (map[string]secret.Stored, error) {
	return nil, nil
}

// Signaler sends signals to the workflows of sessions.
type Signaler interface {
	// Revive restarts the workflow of a session if it is not open, for example because it was
	// terminated by hand. It signals an open workflow to read the session again if that does not
	// execute the session's run, or if another run of it has opened the session, as before a reset.
	// A workflow of an earlier version whose session is in error is replaced, because it would wait
	// for a person.
	Revive(ctx context.Context, s backlog.Attended) (revived bool, err error)
	// SignalPrompt notifies the workflow of a session of a prompt, and starts it if it is not open.
	SignalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) error
	// SignalSandbox reports the state of a sandbox to the workflow. It is not an error if no
	// workflow is open.
	SignalSandbox(ctx context.Context, sessionID string, s contract.SandboxSignal) error
}

// promptedTimeout bounds the signal of a prompt that an agent has sent, because the agent's turn
// waits for the signal.
const promptedTimeout = time.Second

// prompted signals the prompts that agents send to other sessions. A failure is not an error,
// because the relay signals for prompts that no run has claimed.
func prompted(signaler Signaler, logger *slog.Logger) func(context.Context, session.Prompt) {
	return func(ctx context.Context, p session.Prompt) {
		ctx, cancel := context.WithTimeout(ctx, promptedTimeout)
		defer cancel()
		if err := signaler.SignalPrompt(ctx, p.SessionID, p.ID, p.Ordinal); err != nil {
			logger.WarnContext(ctx, "could not signal the prompt of an agent", slog.String("session_id", p.SessionID), slog.String("prompt_id", p.ID), slog.Any("error", err))
		}
	}
}

// Control holds the short activities of sessions, for the queue control. Each group has its own
// part of the store.
type Control struct {
	*records
	*commands
	*runners
	*sandboxes
	*bundles
	*restores
	*reverts
	*reconciler
}

// withDefaults returns c with the defaults of unset fields.
func (c Config) withDefaults() Config {
	if c.SandboxTimeout == 0 {
		c.SandboxTimeout = 24 * time.Hour
	}
	if c.SnapshotTimeout == 0 {
		c.SnapshotTimeout = 5 * time.Minute
	}
	if c.RunnerGrace == 0 {
		c.RunnerGrace = time.Minute
	}
	if c.ImageSoon == 0 {
		c.ImageSoon = time.Second
	}
	if c.ConfirmPause == 0 {
		c.ConfirmPause = 2 * time.Second
	}
	if c.InterruptedPause == 0 {
		c.InterruptedPause = 2 * time.Second
	}
	if c.FlushTimeout == 0 {
		c.FlushTimeout = 2 * time.Minute
	}
	if c.SetupTimeout == 0 {
		c.SetupTimeout = 10 * time.Minute
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
	if c.TurnStall == 0 {
		c.TurnStall = time.Minute
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 15 * time.Second
	}
	if c.OrphanAge == 0 {
		c.OrphanAge = time.Minute
	}
	if c.Secrets == nil {
		c.Secrets = noSecrets{}
	}
	if c.Masks == nil {
		c.Masks = noMasks{}
	}
	if c.MaxTurns == 0 {
		c.MaxTurns = 1000
	}
	if c.Changes == nil {
		c.Attend = 0
	}
	if c.Metrics == nil {
		c.Metrics = metrics.NewWorker(nil)
	}
	return c
}

// New returns the activities of both queues.
func New(config Config) (*Control, *Turns) {
	c := config.withDefaults()
	watched := watching{metrics: c.Metrics, logger: c.Logger}
	store := watchedStore{Store: c.Store, watching: watched}
	c.Store = nil // each group has its part
	c.Log = watchedLog{Log: c.Log, watching: watched}
	run := &runners{Config: &c, store: store}
	runs := turn.New(turn.Config{
		Store: store, Log: c.Log, Agents: c.Agents, Sandbox: c.Sandbox, Secrets: c.Secrets, Masks: c.Masks, Token: run.runnerToken,
		Changes: c.Changes, Links: c.Links, InterruptedPause: c.InterruptedPause, FlushTimeout: c.FlushTimeout, ReadAhead: c.ReadAhead, NoTools: c.NoTools,
		Retried: c.Metrics.ModelRetried, Prompted: prompted(c.Signaler, c.Logger), Logger: c.Logger,
	})
	boxes := &sandboxes{runners: run, Config: &c, store: store}
	files := &transcripts{Config: &c, store: store}
	saved := &bundles{sandboxes: boxes, transcripts: files, Config: &c, store: store}
	control := &Control{
		records:    &records{runs: runs, Config: &c, store: store},
		commands:   &commands{store: store},
		runners:    run,
		sandboxes:  boxes,
		bundles:    saved,
		restores:   &restores{bundles: saved, Config: &c, store: store},
		reverts:    &reverts{runners: run, transcripts: files, Config: &c, store: store, reverting: semaphore.NewWeighted(1)},
		reconciler: &reconciler{sandboxes: boxes, Config: &c, store: store},
	}
	return control, &Turns{
		runs: runs, runners: run, Config: &c, store: store, places: newPlaces(c.MaxTurns),
	}
}
