package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sandboxStore stores the rows of sandboxes and their stages.
type sandboxStore interface {
	breakerStore
	// SessionGet returns the stored session.
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	// WorkflowCheck returns stale_workflow for a context of a workflow run if another run of the workflow has opened
	// the session since. Writes to a session are refused for the same reason.
	WorkflowCheck(ctx context.Context, sessionID string) error
	// GenerationReserve records the intent to make the sandbox of a generation.
	GenerationReserve(ctx context.Context, sessionID string, generation int64, imageID string) error
	// SandboxRecord stores the sandbox of a generation and its deadline.
	SandboxRecord(ctx context.Context, sessionID string, generation int64, sandboxID string, status session.SandboxStatus, deadline time.Time) error
	// SandboxEnd records that the sandbox of a generation has ended.
	SandboxEnd(ctx context.Context, sessionID string, generation int64, reason string) error
	// SandboxesOpen lists the sandboxes that have not ended: of one session, or with an empty id of
	// all.
	SandboxesOpen(ctx context.Context, sessionID string) ([]session.SandboxRow, error)
	// ExitImageExpect requests a lookup of the exit image of a sandbox that no row names.
	ExitImageExpect(ctx context.Context, e image.Exit) error
	// SandboxCloned records that the repository is complete in the sandbox of a generation.
	SandboxCloned(ctx context.Context, sessionID string, generation int64) error
	// SandboxIsCloned reports whether the repository is complete in the sandbox of a generation.
	SandboxIsCloned(ctx context.Context, sessionID string, generation int64) (bool, error)
	// SetupRecord adds a setup event to the session's log: a stage of its workspace (clone, setup) is
	// started, completed or failed.
	SetupRecord(ctx context.Context, sessionID, stage, status string) error
}

// sandboxes are the activities that create, set up and end sandboxes.
type sandboxes struct {
	*runners
	*Config
	store sandboxStore
}

// CreateSandbox creates the sandbox of a generation from the prepared image, or finds the one that
// an earlier attempt created, and returns when its runner answers.
func (g *sandboxes) CreateSandbox(ctx context.Context, in SandboxRequest) (SandboxReady, error) {
	stop := beat(ctx)
	defer stop()
	if g.Shutdown.isSet() {
		<-ctx.Done() // another worker creates it when the installation runs again
		return SandboxReady{}, errShutdown()
	}
	image, err := g.imageOf(ctx, in)
	if err != nil {
		return SandboxReady{}, err
	}
	ready, sb, err := g.start(ctx, in, origin{image: image})
	if err != nil {
		return SandboxReady{}, err
	}
	if err := g.prepareWorkspace(ctx, in.SessionID, in.Generation, sb); err != nil {
		return SandboxReady{}, g.discardUnusedOr(ctx, in, sb, err)
	}
	return ready, nil
}

// origin is the image that a sandbox starts from.
type origin struct {
	image    string
	snapshot bool // a snapshot of the session; otherwise the image of its agent
	outdated bool // its runner is of another build
	// meanwhile runs while the runner starts; may be nil. awake: it has found that the runner serves.
	meanwhile func(context.Context, *sandbox.Sandbox) (awake bool, err error)
	// unrecorded: the caller records that the sandbox is ready.
	unrecorded bool
}

// imageOf returns the image that an earlier attempt reserved for this generation, if it still
// exists, and otherwise the current image of the agent. Two workers may have built the same image,
// or the agent may have a new version: the sandbox of the earlier attempt is kept, with its
// progress in the setup.
func (g *sandboxes) imageOf(ctx context.Context, in SandboxRequest) (string, error) {
	rows, err := g.store.SandboxesOpen(ctx, in.SessionID)
	if err != nil {
		return "", stored(err)
	}
	for _, row := range rows {
		if row.Generation != in.Generation || row.ImageID == "" {
			continue
		}
		exists, err := g.Sandbox.ImageExists(ctx, row.ImageID)
		if err != nil {
			return "", refusedOr(fmt.Errorf("look up the image: %w", err))
		}
		if exists {
			return row.ImageID, nil
		}
	}
	return g.image(ctx, in.SessionID)
}

// image prepares the image for a session without a snapshot.
func (g *sandboxes) image(ctx context.Context, sessionID string) (string, error) {
	s, err := g.store.SessionGet(ctx, sessionID)
	if err != nil {
		return "", stored(err)
	}
	if err := g.pass(ctx, SandboxRequest{SessionID: sessionID, Generation: s.Generation}); err != nil {
		return "", err
	}
	image, err := g.prepareImage(ctx, s)
	if err != nil {
		g.passed(ctx, SandboxRequest{SessionID: sessionID}, origin{}, err)
		return "", refusedOr(fmt.Errorf("prepare the image: %w", err))
	}
	return image, nil
}

// start creates the sandbox of a generation, or adopts the one that an earlier attempt created, and
// ends any earlier sandbox of the session. GenerationUnusable if the name belongs to a foreign
// sandbox, or the sandbox failed to start.
func (g *sandboxes) start(ctx context.Context, in SandboxRequest, from origin) (SandboxReady, *sandbox.Sandbox, error) {
	if err := g.pass(ctx, in); err != nil {
		return SandboxReady{}, nil, err
	}
	ready, sb, err := g.startNow(ctx, in, from)
	g.passed(ctx, in, from, err)
	return ready, sb, err
}

// startNow is start without the breaker.
func (g *sandboxes) startNow(ctx context.Context, in SandboxRequest, from origin) (SandboxReady, *sandbox.Sandbox, error) {
	if err := g.reserve(ctx, in, from.image); err != nil {
		return SandboxReady{}, nil, err
	}
	command := g.serveCommand()
	if from.outdated {
		command = g.awaitingCommand(in.Generation)
	}
	var deadline time.Time
	var env map[string]string
	err := inParallel(
		func() (err error) { deadline, err = g.deadlineOf(ctx, in); return err },
		func() (err error) { env, err = g.serveEnv(ctx, in.SessionID, in.Generation); return err },
	)
	if err != nil {
		return SandboxReady{}, nil, err
	}
	began := time.Now()
	created := await(ctx, "the provider to create the sandbox")
	sb, adopted, err := g.Sandbox.Create(ctx, sandbox.Spec{
		Session: in.SessionID, Generation: in.Generation, Image: from.image, Timeout: g.SandboxTimeout,
		Command: command, Env: env,
	})
	created()
	g.Metrics.SandboxCreated(time.Since(began), err)
	if errors.Is(err, sandbox.ErrNameForeign) {
		return SandboxReady{}, nil, final(GenerationUnusable, err)
	}
	if err != nil {
		return SandboxReady{}, nil, refusedOr(fmt.Errorf("create: %w", err))
	}
	g.Logger.InfoContext(ctx, "sandbox is there", slog.String("session_id", in.SessionID),
		slog.Int64("generation", in.Generation), slog.String("sandbox_id", sb.ID()), slog.Bool("adopted", adopted))
	record := func(ctx context.Context) error {
		if err := g.store.SandboxRecord(ctx, in.SessionID, in.Generation, sb.ID(), session.SandboxStarting, deadline); err != nil {
			return stored(err)
		}
		return g.endOlder(ctx, in.SessionID, in.Generation)
	}
	if from.outdated {
		if err := record(ctx); err != nil {
			return SandboxReady{}, nil, err
		}
		if err := g.replaceRunner(ctx, sb, in.Generation); err != nil {
			return SandboxReady{}, nil, g.discardUnusedOr(ctx, in, sb, err)
		}
		record = func(context.Context) error { return nil }
	}
	if err := g.settleIn(ctx, in, sb, record, from.meanwhile); err != nil {
		return SandboxReady{}, nil, err
	}
	ready := SandboxReady{Generation: in.Generation, SandboxID: sb.ID(), Deadline: deadline}
	if from.unrecorded {
		return ready, sb, nil
	}
	return ready, sb, g.recordReady(ctx, in, ready)
}

// recordReady records that the runner of a sandbox answers.
func (g *sandboxes) recordReady(ctx context.Context, in SandboxRequest, ready SandboxReady) error {
	return stored(g.store.SandboxRecord(ctx, in.SessionID, ready.Generation, ready.SandboxID, session.SandboxReady, ready.Deadline))
}

// awakeTimeout bounds the start of a runner.
const awakeTimeout = 30 * time.Second

// settleIn waits for the runner of a sandbox, for its record, and for the concurrent task. If the
// record is refused, it does not wait for the others.
func (g *sandboxes) settleIn(
	ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, record func(context.Context) error,
	meanwhile func(context.Context, *sandbox.Sandbox) (bool, error),
) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recorded := make(chan error, 1)
	go func() {
		err := record(outer)
		if err != nil {
			cancel()
		}
		recorded <- err
	}()
	answered := await(ctx, "the runner in the sandbox to answer")
	awake, err, meanwhileErr := false, error(nil), error(nil)
	if meanwhile != nil {
		awake, meanwhileErr = meanwhile(ctx, sb)
	}
	exit, exited := errors.AsType[*runnerexec.ExitError](meanwhileErr)
	switch {
	case awake:
	case exited && (exit.Code == runner.ExitNoRunner || exit.Code == runner.ExitRefused):
		err = meanwhileErr // it has waited for the runner
	default:
		err = g.awake(ctx, sb, in.SessionID, in.Generation, awakeTimeout)
	}
	answered()
	if err := <-recorded; err != nil {
		return err
	}
	switch {
	case err != nil && (ctx.Err() != nil || unreached(err)):
		return err // the next attempt finds it
	case err != nil:
		return g.notAwake(ctx, in, sb, err)
	}
	return g.discardUnusedOr(ctx, in, sb, meanwhileErr)
}

// reserve records the intent to create the sandbox of a generation. GenerationUnusable if an earlier attempt has ended it.
func (g *sandboxes) reserve(ctx context.Context, in SandboxRequest, image string) error {
	err := g.store.GenerationReserve(ctx, in.SessionID, in.Generation, image)
	if failure.CodeOf(err) == failure.IllegalState {
		s, getErr := g.store.SessionGet(ctx, in.SessionID)
		if getErr != nil {
			return stored(getErr)
		}
		if !s.Status.Final() {
			return final(GenerationUnusable, err)
		}
	}
	return stored(err)
}

// deadlineOf returns the deadline of a sandbox whose generation is reserved. It counts from the first attempt, because the
// sandbox may exist already.
func (g *sandboxes) deadlineOf(ctx context.Context, in SandboxRequest) (time.Time, error) {
	rows, err := g.store.SandboxesOpen(ctx, in.SessionID)
	if err != nil {
		return time.Time{}, stored(err)
	}
	for _, row := range rows {
		if row.Generation == in.Generation {
			return row.ReservedAt.Add(g.SandboxTimeout), nil
		}
	}
	return time.Time{}, fmt.Errorf("generation %d was ended while it was reserved", in.Generation)
}

// unreached reports whether the provider could not be reached, which does not reveal the state of
// the sandbox.
func unreached(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && (e.Code == sandbox.Unavailable || e.Code == sandbox.Throttled)
}

// notAwake ends a sandbox whose runner never answered.
func (g *sandboxes) notAwake(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, cause error) error {
	cause = &silentError{fmt.Errorf("the runner of sandbox %s does not answer: %w", sb.ID(), cause)}
	return g.discardUnused(ctx, in, sb, "its runner does not answer", cause)
}

// discardUnusedOr is lostOr for a sandbox that its session does not use yet: another one replaces it
// without a loss.
func (g *sandboxes) discardUnusedOr(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, err error) error {
	if err = lostOr(ctx, sb, err); TypeOf(err) != SandboxLost {
		return err
	}
	unusable := g.discardUnused(ctx, in, sb, "it was lost before it was used", err)
	if exceeded(err) && TypeOf(unusable) == GenerationUnusable {
		return final(Refused, errors.New(ReasonOf(err))) // another sandbox would exceed the limit too
	}
	return unusable
}

// checkUnused returns Fenced if another attempt has made the session use the sandbox: a turn may have begun.
func (g *sandboxes) checkUnused(ctx context.Context, in SandboxRequest) error {
	next := in.Next
	if next == 0 && in.Then != nil {
		next = in.Then.No
	}
	if next == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	s, err := g.store.SessionGet(ctx, in.SessionID)
	if err == nil && s.TransitionNo >= next {
		return final(Fenced, fmt.Errorf("transition %d was recorded by another attempt", next))
	}
	return stored(err)
}

// discardUnused ends a sandbox that was never used; the next generation gets another.
func (g *sandboxes) discardUnused(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, reason string, cause error) error {
	if err := g.checkUnused(context.WithoutCancel(ctx), in); err != nil {
		if TypeOf(err) == Fenced {
			return err
		}
		return errors.Join(cause, err)
	}
	row := session.SandboxRow{SessionID: in.SessionID, Generation: in.Generation, SandboxID: sb.ID()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := g.end(ctx, row, reason); err != nil {
		return errors.Join(cause, err)
	}
	return final(GenerationUnusable, cause)
}

func (g *sandboxes) endOlder(ctx context.Context, sessionID string, generation int64) error {
	rows, err := g.store.SandboxesOpen(ctx, sessionID)
	if err != nil {
		return stored(err)
	}
	for _, row := range rows {
		if row.Generation < generation {
			if err := g.end(ctx, row, "followed by a newer generation"); err != nil {
				return fmt.Errorf("end generation %d: %w", row.Generation, err)
			}
		}
	}
	return nil
}
