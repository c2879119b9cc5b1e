package activities

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// runnerStore stores the keys of runner links and the reports of sealed runners.
type runnerStore interface {
	// SandboxLinkKeySet records the key from which the token of a sandbox's runner is derived, and
	// returns the one that was recorded first.
	SandboxLinkKeySet(ctx context.Context, sessionID string, generation int64, keyID string) (string, error)
	// SandboxLinkKey returns the recorded key, or "".
	SandboxLinkKey(ctx context.Context, sessionID string, generation int64) (string, error)
	TranscriptPositions(ctx context.Context, sessionID string) ([]transcript.Position, error)
	// TranscriptAppend stores segments. It skips those that are stored already or exceed a limit; a
	// gap is illegal_state.
	TranscriptAppend(ctx context.Context, segments []transcript.Segment) error
	// TranscriptGap counts a turn that failed because a segment left a gap, and returns the count.
	TranscriptGap(ctx context.Context, sessionID, runID string) (int, error)
	// FilesPosition returns the position of the newest stored change of a workspace.
	FilesPosition(ctx context.Context, sessionID string) (workspacefile.Position, error)
	// FilesKnown returns the stored files, for a runner without an index.
	FilesKnown(ctx context.Context, sessionID string) ([]workspacefile.Known, error)
	// FilesAppend stores the changes of a workspace with their events, and skips those that are
	// stored already. eventlog.ErrFenced when a newer generation or attempt has taken over.
	FilesAppend(ctx context.Context, b workspacefile.Batch) error
}

// runners are the activities that talk to the runners in sandboxes.
type runners struct {
	*Config
	store    runnerStore
	linkKeys linkKeys
}

const (
	commandTimeout = 20 * time.Second // for a runner command that only queries
	verifyTimeout  = 5 * time.Minute
	sealTimeout    = 5 * time.Minute
)

// errSealTimeout ends a seal over a link.
var errSealTimeout = errors.New("the runner has not sealed the sandbox in time")

// linkKeys caches the key ids of sandboxes, which do not change.
type linkKeys struct {
	mu sync.Mutex
	of map[session.SandboxKey]string
}

// maxLinkKeys bounds the cache.
const maxLinkKeys = 10_000

func (l *linkKeys) get(k session.SandboxKey) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.of[k]
	return id, ok
}

func (l *linkKeys) remember(k session.SandboxKey, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || len(l.of) >= maxLinkKeys {
		l.of = map[session.SandboxKey]string{}
	}
	l.of[k] = id
}

// runnerToken returns the token of the links to one generation's runner. It is derived, so that
// every worker has it and it is never stored. The store names its key, which stays the same when
// the key of the installation is replaced.
func (g *runners) runnerToken(ctx context.Context, sessionID string, generation int64) (string, error) {
	sandboxKey := session.SandboxKey{SessionID: sessionID, Generation: generation}
	id, known := g.linkKeys.get(sandboxKey)
	if !known {
		var err error
		if id, err = g.store.SandboxLinkKey(ctx, sessionID, generation); err != nil {
			return "", stored(err)
		}
	}
	token, err := g.deriveToken(sandboxKey, id)
	if err == nil && id != "" {
		g.linkKeys.remember(sandboxKey, id)
	}
	return token, err
}

func (g *runners) deriveToken(k session.SandboxKey, keyID string) (string, error) {
	key, err := g.Keys.LinkKey(keyID)
	if err != nil {
		return "", fmt.Errorf("token of the runner of generation %d: %w", k.Generation, err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "runner link %s", session.SandboxName(k.SessionID, k.Generation))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

func (g *runners) serveCommand() []string { return runner.DefaultPaths().Serve() }

// serveEnv passes the hash of the token to the runner of a new sandbox. The token itself is never
// in a sandbox.
func (g *runners) serveEnv(ctx context.Context, sessionID string, generation int64) (map[string]string, error) {
	id, err := g.store.SandboxLinkKeySet(ctx, sessionID, generation, g.Keys.KeyID())
	if err != nil {
		return nil, stored(err)
	}
	key := session.SandboxKey{SessionID: sessionID, Generation: generation}
	token, err := g.deriveToken(key, id)
	if err != nil {
		return nil, err
	}
	if id != "" {
		g.linkKeys.remember(key, id)
	}
	return map[string]string{runner.TokenVariable: runner.TokenHash(token)}, nil
}

// awake waits for the runner of a sandbox to serve.
func (g *runners) awake(ctx context.Context, sb *sandbox.Sandbox, sessionID string, generation int64, wait time.Duration) error {
	_, err := g.pinged(ctx, sb, sessionID, generation, wait)
	return err
}

// pinged returns the runner's description of itself, and waits until it serves.
func (g *runners) pinged(ctx context.Context, sb *sandbox.Sandbox, sessionID string, generation int64, wait time.Duration) (runner.Ping, error) {
	request, err := g.ping(ctx, sessionID, generation, wait)
	if err != nil {
		return runner.Ping{}, err
	}
	stdout, err := runnerexec.Run(ctx, sb, runner.DefaultPaths().Ping(request), wait+commandTimeout)
	if err != nil {
		return runner.Ping{}, err
	}
	return runner.ParsePing(stdout)
}

// ping returns the request that waits for the runner of a sandbox to serve.
func (g *runners) ping(ctx context.Context, sessionID string, generation int64, wait time.Duration) (runner.PingRequest, error) {
	token, err := g.runnerToken(ctx, sessionID, generation)
	return runner.PingRequest{Token: token, Wait: wait}, err
}

// sealBatch bounds the content of files that a seal stores at a time.
const sealBatch = 8 << 20

// seal stops the agent, and stores the rest of its transcripts and file changes.
func (g *runners) seal(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox, grace time.Duration) error {
	return g.sealIdle(ctx, sessionID, generation, sb, grace, nil)
}

// sealIdle is seal for a sandbox that the session keeps using. openRun is the open run that the runner has reported before the
// caller checked that the session is idle: the seal fails, and changes nothing, if another run has begun since, as it
// may have if this attempt is late. Nil: it is not compared.
func (g *runners) sealIdle(
	ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox, grace time.Duration, openRun *string,
) error {
	s, err := g.prepareSeal(ctx, sessionID, generation, sb)
	if err != nil {
		return err
	}
	s.openRun = openRun
	_, err = g.sealPrepared(ctx, s, grace)
	return err
}

// preparedSeal has everything that a seal needs. So far nothing has changed in the sandbox.
type preparedSeal struct {
	sessionID  string
	generation int64
	sandbox    *sandbox.Sandbox
	token      string
	known      []transcript.Position
	position   workspacefile.Position
	masker     *secret.Masker
	openRun    *string          // see sealIdle
	command    *sandbox.Process // waits for its request; nil if a link is kept
}

// abandon ends a seal that is not executed. s may be nil.
func (s *preparedSeal) abandon() {
	if s != nil && s.command != nil {
		_ = s.command.Close() // without a request, the command ends and changes nothing
	}
}

// prepareSeal prepares a seal. The result must be sealed or abandoned.
func (g *runners) prepareSeal(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox) (*preparedSeal, error) {
	s := &preparedSeal{sessionID: sessionID, generation: generation, sandbox: sb}
	linked := g.Links.Seals(sb.ID())
	err := inParallel(
		func() (err error) { s.token, err = g.runnerToken(ctx, sessionID, generation); return err },
		func() (err error) { s.known, err = g.store.TranscriptPositions(ctx, sessionID); return stored(err) },
		func() (err error) { s.position, err = g.store.FilesPosition(ctx, sessionID); return stored(err) },
		func() (err error) {
			if s.masker, err = g.Masks.Masker(ctx); err != nil {
				return fmt.Errorf("read the secrets to mask: %w", err)
			}
			return nil
		},
		func() (err error) {
			if linked {
				return nil
			}
			if s.command, err = openSeal(ctx, sb); err != nil {
				return fmt.Errorf("seal: %w", err)
			}
			return nil
		},
	)
	if err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// sealPrepared executes a prepared seal, and returns the manifest.
func (g *runners) sealPrepared(ctx context.Context, s *preparedSeal, grace time.Duration) (manifest.Manifest, error) {
	sessionID, sb, position := s.sessionID, s.sandbox, s.position
	request := runner.SealRequest{Token: s.token, Known: s.known, Grace: grace, FilesFrom: &position, OpenRun: s.openRun}
	store := g.sealStore(ctx, sessionID, position, s.generation, s.masker)
	sealed, err := g.sealOnce(ctx, sb, s.command, request, store)
	if err == nil && !sealed.Files { // the list of a large workspace takes longer than the rest of a seal, and is seldom needed
		request.FilesFrom, request.Files = nil, &position
		if request.KnownFiles, err = g.store.FilesKnown(ctx, sessionID); err != nil {
			return manifest.Manifest{}, stored(err)
		}
		sealed, err = g.sealOnce(ctx, sb, nil, request, store)
	}
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("seal: %w", err)
	}
	return sealed.Manifest.Bounded(), nil
}

// openSeal starts the seal command in a sandbox. It does nothing until it has its request.
func openSeal(ctx context.Context, sb *sandbox.Sandbox) (*sandbox.Process, error) {
	argv := runner.DefaultPaths().Seal(runner.SealRequest{}).Argv
	return sb.Exec(ctx, sandbox.ExecSpec{Argv: argv, Timeout: sealTimeout})
}

// sealOnce seals a sandbox, and passes the output of the seal to store, with nil at the end. It uses
// process if that is not nil, else the kept link of the sandbox, else a new process.
func (g *runners) sealOnce(
	ctx context.Context, sb *sandbox.Sandbox, process *sandbox.Process, request runner.SealRequest, store func(runner.Message) error,
) (runner.Seal, error) {
	if process == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, sealTimeout, errSealTimeout)
		defer cancel()
		request.Workspace = runner.DefaultPaths().Workspace
		sealed, done, err := g.Links.Seal(ctx, sb.ID(), request, store)
		if err == nil && done {
			err = store(nil)
		}
		if done {
			return sealed, err
		}
		if process, err = openSeal(ctx, sb); err != nil {
			return runner.Seal{}, err
		}
	}
	return sealBy(process, request, store)
}

// sealBy gives the seal command its request.
func sealBy(process *sandbox.Process, request runner.SealRequest, store func(runner.Message) error) (runner.Seal, error) {
	defer process.Close() // only closes the link
	if _, err := process.Stdin.Write(runner.DefaultPaths().Seal(request).Stdin); err != nil {
		return runner.Seal{}, err
	}
	if err := process.Stdin.Close(); err != nil {
		return runner.Seal{}, err
	}
	sealed, err := runner.ReadSeal(process.Stdout, store)
	if err != nil {
		return runner.Seal{}, err
	}
	return sealed, store(nil) // the answer is complete; how the command exits does not matter
}

// sealStore stores the messages of a seal: segments of transcripts at once, changes of files in
// batches, and the last batch when it is called with nil.
func (g *runners) sealStore(ctx context.Context, sessionID string, position workspacefile.Position, generation int64, masker *secret.Masker) func(runner.Message) error {
	gatherer := runner.NewFileGatherer(position, generation)
	// The bounds of a seal's reports are those of a turn.
	budget := &workspacefile.Budget{Bytes: conversation.MaxTurnBytes, Events: conversation.MaxTurnEvents}
	storeFiles := func() error {
		b, any := gatherer.Take()
		if !any {
			return nil
		}
		b.Mask, b.Budget = masker.Text, budget
		err := g.store.FilesAppend(ctx, b)
		if failure.CodeOf(err) == failure.Unavailable {
			return err
		}
		if err != nil { // a session must be able to hibernate without them
			g.Logger.WarnContext(ctx, "files of a sealed workspace are not stored", slog.String("session_id", sessionID), slog.Any("error", err))
		}
		return nil
	}
	return func(m runner.Message) error {
		if m == nil {
			return storeFiles()
		}
		if s, ok := m.(*runner.Segment); ok {
			err := g.store.TranscriptAppend(ctx, []transcript.Segment{{
				SessionID: sessionID, Path: s.Path, Version: s.Version, Offset: s.Offset, Data: s.Data,
			}})
			return g.sealedGap(ctx, sessionID, err)
		}
		if gatherer.Gather(m) && gatherer.Bytes >= sealBatch {
			return storeFiles()
		}
		return nil
	}
}

// sealedGap returns the error of storing a segment of a seal. If seals keep leaving gaps, such
// segments are skipped: a session must be able to hibernate, and the snapshot has the whole file.
func (g *runners) sealedGap(ctx context.Context, sessionID string, err error) error {
	if failure.CodeOf(err) != failure.IllegalState {
		return err
	}
	gaps, countErr := g.store.TranscriptGap(ctx, sessionID, "")
	if countErr != nil || gaps < transcript.MaxGaps {
		return errors.Join(err, countErr)
	}
	g.Logger.WarnContext(ctx, "skipped a transcript segment that does not follow the stored ones",
		slog.String("session_id", sessionID), slog.Any("error", err))
	return nil
}

// FlushSandbox stops the agent and stores the rest of its transcripts before its sandbox is
// terminated for good.
func (g *runners) FlushSandbox(ctx context.Context, in SandboxRef) error {
	return g.seal(ctx, in.SessionID, in.Generation, g.Sandbox.Open(in.SandboxID), 500*time.Millisecond)
}

// AbortRun interrupts the turn of a run. The runner kills the agent's processes that remain after a
// grace period. It is not an error if the run has ended.
func (g *runners) AbortRun(ctx context.Context, in AbortRequest) error { return g.interrupt(ctx, in) }

func (g *runners) interrupt(ctx context.Context, in AbortRequest) error {
	adapter, err := g.Agents.Get(in.Agent)
	if err != nil {
		return final(Refused, err)
	}
	token, err := g.runnerToken(ctx, in.SessionID, in.Generation)
	if err != nil {
		return err
	}
	interrupt := adapter.Interrupt(run.AgentID(in.RunID, in.Part))
	e := runner.DefaultPaths().Abort(runner.AbortRequest{
		Token: token, Run: run.AgentID(in.RunID, in.Part),
		Interrupt: runner.Interrupt{Stdin: interrupt.Stdin, Signal: interrupt.Signal, Grace: interrupt.Grace},
	})
	sb := g.Sandbox.Open(in.SandboxID)
	stdout, err := runnerexec.Run(ctx, sb, e, commandTimeout)
	if err != nil {
		return lostOr(ctx, sb, fmt.Errorf("abort: %w", err))
	}
	_, err = runner.ParseAbort(stdout)
	return err
}
