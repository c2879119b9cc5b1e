package turn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/loopback"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// attemptStore records the progress of attempts at runs.
type attemptStore interface {
	// RunDoing records which of the run's frames the attempt with the token is handling.
	RunDoing(ctx context.Context, runID, token string, doing run.Doing) error
	// NetworkRecord appends network events of a run to the session's log.
	NetworkRecord(ctx context.Context, sessionID, runID string, refusals []session.Refusal) error
	// TranscriptAppend stores segments. It skips segments that are already stored or exceed a
	// limit. A gap is refused as illegal_state.
	TranscriptAppend(ctx context.Context, segments []transcript.Segment) error
	// TranscriptGap counts a turn that failed because a segment left a gap, and returns the count.
	TranscriptGap(ctx context.Context, sessionID, runID string) (int, error)
}

// attempt is one attempt at a run.
type attempt struct {
	*Executor
	in      Request
	start   run.Start
	token   string
	adapter agent.Adapter
	*convert
	remasked time.Time                // when the stored secrets were read last
	prepared *prepared                // nil before deliver prepares
	asked    []string                 // names of the secrets that were requested for the agent
	stored   map[string]secret.Stored // the requested secrets that are stored
	sandbox  *sandbox.Sandbox
	progress Progress

	frame int64          // the newest frame whose events are committed
	end   *agent.TurnEnd // set once the frame that ended the turn is committed
	// closed means that the journal has no frames after lastFrame and gets none, because the runner
	// was interrupted while it had the run.
	closed    bool
	lastFrame int64
	// mayHaveDelivered is false only while it is certain that no attempt at this
	// run has handed the prompt to a runner.
	mayHaveDelivered bool

	lastActive time.Time           // time of the last message from the runner or answer to the agent
	tried      time.Time           // time of the last unsuccessful attempt to park the run
	parked     bool                // the run is parked, and this attempt has ended
	answers    []question.Question // answered questions that this part of the run starts with

	answeredTo int64 // the frame up to which calls are answered

	steering steering

	deferred *batch // frames that no reader waits for, to be committed with the next ones
	spoken   string // the block of the newest delta

	lastAppend *eventlog.Append // the last frames, which are stored with the end of the run

	flushing bool                 // the turn has ended, and the runner sends the rest of the transcripts
	last     []transcript.Segment // segments of that rest, which are stored with the end of the run

	refusedTo   *int64 // see Result
	suspicion   suspicion
	permissions permission.Rules
	waiting     waiting
	files       runner.FileGatherer
	// tooLargeLogged reports whether it was logged that the workspace has too many files.
	tooLargeLogged bool
	hasCommitted   bool // an event of this attempt has been committed
}

func (x *Executor) newAttempt(ctx context.Context, in Request, progress Progress) (*attempt, error) {
	start := in.Start
	adapter, err := x.Agents.Get(start.Agent)
	if err != nil {
		return nil, final(Refused, err)
	}
	resumed, end, err := x.resume(start)
	if err != nil {
		return nil, err
	}
	a := &attempt{
		Executor: x, in: in, start: start, token: in.Token, progress: progress, adapter: adapter, convert: resumed, end: end,
		sandbox: x.Sandbox.Open(in.SandboxID), frame: start.Run.LastFrame, answeredTo: start.Run.LastFrame,
		mayHaveDelivered: start.Run.Attempt > 1, lastActive: time.Now(),
		permissions: permissionsOf(start),
		files:       runner.NewFileGatherer(start.Files, in.Generation),
	}
	if !a.fresh() { // a fresh attempt emits no events until deliver has read the secrets
		err = a.remask(ctx)
	}
	return a, err
}

// fresh reports whether it is certain that no earlier attempt has delivered the prompt.
func (a *attempt) fresh() bool {
	return a.start.Run.Attempt <= 1 && a.start.Run.Part == 0 && len(a.start.Run.Translator) == 0
}

// run attaches, delivers the prompt if necessary, and follows the frames to the end of the turn.
func (a *attempt) run(ctx context.Context) (err error) {
	if err := a.beginPart(ctx); err != nil {
		return err
	}
	var watch *refusalWatch
	if a.end == nil {
		watch = a.watchRefusals(ctx)
		defer watch.abandon()
	}
	link, err := a.open(ctx)
	if err != nil {
		return err
	}
	a.progress.Made()
	if err := a.countFiles(ctx); err != nil {
		link.close()
		return err
	}
	err = a.answerAgain(link)
	if err == nil {
		err = a.suspect(ctx, link.welcome())
	}
	if err != nil {
		link.close()
		return err
	}
	// A context cannot cancel a write to a runner that does not read. Closing the link ends the
	// write.
	unblock := context.AfterFunc(ctx, func() { link.process.Close() })
	defer unblock()
	defer func() {
		if err != nil {
			link.close()
			return
		}
		open, process := link.release()
		a.Links.keep(ctx, a.in.SandboxID, open, process)
	}()
	if a.start.Run.Attempt > 1 {
		a.watchAnswers() // earlier questions may have been answered in the meantime
		a.waiting.again = true
	}
	defer a.stopWatching()
	if a.end == nil {
		defer watch.end()
		if err := traced(ctx, "deliver", func(ctx context.Context) error { return a.deliver(ctx, link, watch) }); err != nil {
			return err
		}
		a.progress.Made()
		if err := a.answered(ctx); err != nil {
			return err
		}
		if err := a.resend(link); err != nil {
			return err
		}
		if err := a.beginSteering(ctx, link); err != nil {
			return err
		}
		defer a.stopSteering()
		done := func([]runner.Message) bool { return a.ended() != nil || a.exhausted() || a.parked }
		if err := a.follow(ctx, link, done, a.progress.Waiting); err != nil {
			return err
		}
	}
	if a.parked {
		return nil
	}
	if a.ended() == nil {
		if err := pauseFor(ctx, a.InterruptedPause); err != nil {
			return err
		}
		return final(DeliveryUnknown, errors.New("the runner was interrupted while it had this run"))
	}
	if watch != nil {
		watch.finish() // while the runner sends the transcripts
	}
	if err := traced(ctx, "flush transcripts", func(ctx context.Context) error { return a.flush(ctx, link) }); err != nil {
		a.appendDeferred(ctx)
		return err
	}
	if watch != nil {
		a.awaitWatch(ctx, watch.done)
		a.refusedTo = watch.recordedTo()
	}
	return a.giveLast(ctx)
}

// errNotFlushed ends the wait for a runner that keeps its link alive but does not report that
// everything is sent.
var errNotFlushed = errors.New("the runner has not sent the rest of the transcripts in time")

// flush settles the turn and stores the rest of the transcripts, within FlushTimeout.
func (a *attempt) flush(ctx context.Context, link *turnLink) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.FlushTimeout, errNotFlushed)
	defer cancel()
	// The last lines of the transcript belong to this turn, and the sandbox may be replaced by its
	// bundle within a second.
	if err := link.link.SettleAndFlush(flushAtEnd); err != nil {
		return fmt.Errorf("settle the turn and flush the transcripts: %w", err)
	}
	a.flushing = true
	err := a.follow(ctx, link, flushed, func() {})
	if err == nil || len(a.last) == 0 {
		return err
	}
	last := a.last
	a.last = nil
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), segmentsTimeout)
	defer cancel()
	return errors.Join(err, a.StoreSegments(ctx, a.in.SessionID, a.in.RunID, last))
}

// awaitWatch waits until done is closed. A deferred batch is committed when it is due.
func (a *attempt) awaitWatch(ctx context.Context, done <-chan struct{}) {
	if a.deferred != nil {
		due := time.NewTimer(time.Until(a.deferred.due))
		defer due.Stop()
		select {
		case <-done:
			return
		case <-due.C:
			a.appendDeferred(ctx)
		}
	}
	<-done
}

// open opens the link to the runner. A fresh attempt prepares its prompt concurrently, since both
// steps mostly wait for other services.
func (a *attempt) open(ctx context.Context) (*turnLink, error) {
	var link *turnLink
	var err error
	attached := make(chan struct{})
	go func() {
		defer close(attached)
		err = traced(ctx, "attach", func(ctx context.Context) (err error) {
			link, err = a.attach(ctx)
			return err
		})
	}()
	opened := false
	defer func() {
		<-attached // also after a panic of the preparation
		if !opened && link != nil {
			link.close()
		}
	}()
	if a.fresh() {
		a.prepared = a.prepare(ctx)
	}
	<-attached
	if err != nil {
		return nil, fmt.Errorf("attach to the runner: %w", err)
	}
	if a.remasked.IsZero() { // the preparation failed, but may not be needed
		if err := a.remask(ctx); err != nil {
			return nil, err
		}
	}
	opened = true
	return link, nil
}

// prepared is the start message of a run, or the error that prevents the start.
type prepared struct {
	start runner.Start
	err   error
}

func (a *attempt) prepare(ctx context.Context) *prepared {
	start, err := a.prompt(ctx)
	return &prepared{start, err}
}

// deliver sends the prompt unless the runner has it from an earlier attempt.
func (a *attempt) deliver(ctx context.Context, link *turnLink, watch *refusalWatch) error {
	welcome := link.welcome()
	if welcome.Delivery != runner.NotStarted {
		a.mayHaveDelivered = true
		if !welcome.Open {
			a.closed, a.lastFrame = true, welcome.LastFrame
		}
		return nil
	}
	p := a.prepared
	if p == nil {
		p = a.prepare(ctx)
	}
	if p.err != nil {
		return p.err
	}
	watch.awaitBegin()
	a.mayHaveDelivered = true
	if err := link.link.Start(p.start); err != nil {
		return fmt.Errorf("hand the prompt over: %w", err)
	}
	return nil
}

// resend repeats the input that an earlier attempt may have sent over a broken link. The frame that
// requested the input is committed, so no later frame requests it again.
func (a *attempt) resend(link *turnLink) error {
	listener, ok := a.translator.(agent.Listener)
	if !ok || a.closed {
		return nil
	}
	input := listener.Unacknowledged()
	if len(input) == 0 {
		return nil
	}
	if err := link.link.Input(input); err != nil {
		return fmt.Errorf("ask the agent again to continue: %w", err)
	}
	return nil
}

// markFresh is how long the mark of the stored secrets that was read with the start of a run counts as
// the current one.
const markFresh = time.Second

// withMark returns a context that has the mark of the stored secrets if that was read just now, so that a
// prompt does not wait for another read.
func (a *attempt) withMark(ctx context.Context) context.Context {
	if mark := a.start.SecretsMark; time.Since(mark.At) <= markFresh {
		return secret.WithMark(ctx, mark.Value)
	}
	return ctx
}

// prompt writes the profile into the sandbox and returns the message that starts the run.
func (a *attempt) prompt(ctx context.Context) (runner.Start, error) {
	launch, err := a.launch(ctx)
	if err != nil {
		return runner.Start{}, err
	}
	if err := a.maskHandOff(ctx); err != nil {
		return runner.Start{}, err
	}
	in := a.promptInput()
	if a.start.Run.Part == 0 { // later parts of the run find the attachments in place
		if err := a.placeAttachments(ctx); err != nil {
			return runner.Start{}, err
		}
		if in.Images, err = a.images(ctx); err != nil {
			return runner.Start{}, err
		}
	}
	input, err := a.adapter.Prompt(in)
	if err != nil {
		return runner.Start{}, final(Refused, fmt.Errorf("prompt for %s: %w", a.start.Agent, err))
	}
	ctx = a.withMark(ctx)
	secrets, err := a.secrets(ctx, launch.Secrets)
	if err != nil {
		return runner.Start{}, err
	}
	given := func(name string) bool { return secrets[name] != "" }
	if missing := a.adapter.Describe().Missing(a.start.Profile, given); len(missing) > 0 {
		return runner.Start{}, final(Refused, errors.New(missing[0].MissingText(a.start.Agent)))
	}
	if err := a.bind(ctx, secrets, launch.Env); err != nil {
		return runner.Start{}, err
	}
	// The agent may print its input at once, and a secret may have been stored since the masker was
	// made.
	if err := a.remask(ctx); err != nil {
		return runner.Start{}, err
	}
	launch.Env = maps.Clone(launch.Env)
	network := func() (*sandbox.Network, error) { return loopback.NetworkOf(ctx, a.Sandbox) }
	if err := loopback.Rewrite(network, secrets, launch.Env); err != nil {
		if _, ok := errors.AsType[*loopback.Error](err); ok {
			err = final(Refused, err)
		}
		return runner.Start{}, err
	}
	return runner.Start{
		Input:   input,
		Secrets: secrets,
		Launch:  runner.Launch{Argv: launch.Argv, Env: launch.Env, Dir: launch.Dir, Transcripts: launch.Transcripts, Key: launch.Key},
	}, nil
}
