package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Turns holds the long activities, for the queue turns.
type Turns struct {
	*settler
	*Config
	store     turnStore
	runners   *runners
	readAhead *semaphore.Weighted
	places    *places
}

// turnStore is what turns need of the store.
type turnStore interface {
	attemptStore
	attendantStore
	questionStore
	fileStore
}

// attemptStore keeps runs, and what attempts at them do.
type attemptStore interface {
	// RunAttach makes token the attempt whose appends count and returns what the
	// worker needs. illegal_state when the run is over, or another attempt that is
	// not older than by has it.
	RunAttach(ctx context.Context, runID, token string, by session.Dispatch) (session.RunStart, error)
	// RunDoing records what the attempt with the token does with the run's frames.
	RunDoing(ctx context.Context, runID, token string, doing session.Doing) error
	RunGet(ctx context.Context, runID string) (session.Run, error)
	// RunEnd gives run and prompt their outcome with the events turn_end, prompt
	// and queue, and counts metrics. A run that is over keeps its outcome, which
	// is returned either way.
	RunEnd(ctx context.Context, ending session.RunEnding) (session.Run, error)
	// NetworkRecord adds network events of a run to the session's log.
	NetworkRecord(ctx context.Context, sessionID, runID string, refusals []session.Refusal) error
	ProblemTell(ctx context.Context, sessionID, code, message string) error
	TranscriptAppend(ctx context.Context, segments []session.TranscriptSegment) error
	TranscriptGap(ctx context.Context, sessionID, runID string) (int, error)
}

// errHandOver is what a turn ends with on a worker that stops: the agent works
// on, and the next worker attaches where this one stood.
var errHandOver = errors.New("this worker stops; another carries the turn on")

// RunTurn executes a run to its end: it attaches to the runner, delivers the prompt if the runner
// does not have it, turns every frame into events and gives the run its outcome. Whatever it did is
// committed, so another worker continues at the next frame. See the package documentation for how
// each loss is reported.
func (t *Turns) RunTurn(ctx context.Context, in TurnRequest) (TurnResult, error) {
	ctx, pulse := startPulse(ctx, t.TurnStall, t.Logger.With(slog.String("session_id", in.SessionID), slog.String("run_id", in.RunID)))
	defer pulse.stop()
	place := t.places.take()
	defer place.release()
	token := newToken()
	by := session.Dispatch{No: in.Dispatch, Attempt: int64(activity.GetInfo(ctx).Attempt)}
	start, err := recorded(ctx, func(ctx context.Context) (session.RunStart, error) {
		return t.store.RunAttach(ctx, in.RunID, token, by)
	})
	if failure.CodeOf(err) == failure.IllegalState {
		return t.superseded(ctx, in, err)
	}
	if err != nil {
		return TurnResult{}, stored(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			cancel(errHandOver)
		case <-ctx.Done():
		}
	}()
	if start.Quarantine {
		return t.quarantine(ctx, in, start)
	}
	attendant := t.newAttendant(in, pulse, place)
	defer attendant.stop()
	for {
		result, attending, err := t.runTurn(ctx, in, start, token, attendant)
		if err != nil || !attending {
			return attendant.report(result), err
		}
		next, err := attendant.next(ctx, &result)
		if err != nil || next == nil {
			return attendant.report(result), err
		}
		in.RunID, in.PromptID, start, token = next.Run.ID, next.Prompt.ID, *next, next.Run.Token
	}
}

// runTurn executes one run to its end. It reports whether the attempt attends the session afterwards.
func (t *Turns) runTurn(ctx context.Context, in TurnRequest, start session.RunStart, token string, a *attendant) (result TurnResult, attending bool, err error) {
	turn, err := t.newTurn(ctx, in, start, token)
	if err != nil {
		return TurnResult{}, false, err
	}
	turn.pulse = a.pulse
	if err = turn.run(ctx); err != nil && turn.end == nil {
		turn.leave(ctx)
	}
	switch {
	case errors.Is(context.Cause(ctx), errHandOver):
		return TurnResult{}, false, temporal.NewApplicationErrorWithOptions(errHandOver.Error(), HandOver, temporal.ApplicationErrorOptions{
			Category: temporal.ApplicationErrorCategoryBenign, // it happens with every deploy
		})
	case ctx.Err() != nil && !turn.mayHaveDelivered:
		return TurnResult{}, false, temporal.NewApplicationError("cancelled before the agent got the prompt", NotHandedOver)
	case ctx.Err() != nil:
		return TurnResult{}, false, ctx.Err()
	case errors.Is(err, eventlog.ErrFenced), errors.Is(err, runner.ErrDisplaced), isStale(err):
		result, err = t.superseded(ctx, in, err)
		return result, false, err
	case err != nil && turn.end == nil:
		return TurnResult{}, false, t.turnError(ctx, turn, err)
	case err != nil:
		// The turn has ended; only the last lines of the transcript may be missing.
		turn.log().WarnContext(ctx, "the transcripts were not flushed at the end of a turn", slog.Any("error", err))
	}
	end := turn.end
	ending := session.RunEnding{
		RunID: in.RunID, Token: token, Outcome: end.Outcome, Reason: end.Reason, Usage: end.Usage, Model: end.Model,
	}
	if in.Look {
		ending.LookFor = activity.GetInfo(ctx).WorkflowExecution.RunID
	}
	if err == nil {
		ending.Attend = a.ready()
	}
	run, err := recorded(ctx, func(ctx context.Context) (session.Run, error) { return t.store.RunEnd(ctx, ending) })
	if failure.CodeOf(err) == failure.IllegalState {
		result, err = t.superseded(ctx, in, err)
		return result, false, err
	}
	if err != nil {
		return TurnResult{}, false, stored(err)
	}
	result = resultOf(run)
	if in.Attend != nil { // without a look another attempt has ended the run
		result.EndedAt, result.Reread = run.EndedAt, run.Look == nil && in.Look
	}
	return result, run.Attended, nil
}

// recordTimeout bounds one statement of a turn on its run: shorter than the heartbeat's timeout, so
// that an attempt which meets a store that hangs ends by itself.
const recordTimeout = 5 * time.Second

// recorded makes one such statement, heartbeating meanwhile.
func recorded[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	stop := beat(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return do(ctx)
}

func resultOf(r session.Run) TurnResult {
	out := TurnResult{Outcome: r.Outcome, Reason: r.Reason, Usage: r.Usage, LastFrame: r.LastFrame}
	if r.Look != nil {
		waiting := waitingOf(*r.Look)
		out.Waiting = &waiting
	}
	return out
}

// superseded reports the end of a run that is over, since the answer of the attempt that ended it
// may have been lost; that one may have run other prompts since, if it was allowed to attend. Fenced while the run is open:
// the workflow reads the row again.
func (t *Turns) superseded(ctx context.Context, in TurnRequest, cause error) (TurnResult, error) {
	run, err := t.store.RunGet(ctx, in.RunID)
	if err != nil {
		return TurnResult{}, stored(err)
	}
	if run.Outcome != "" {
		result := resultOf(run)
		result.Reread = in.Attend != nil
		return result, nil
	}
	return TurnResult{}, final(Fenced, cause)
}

// turnError says what a failed attempt means for the run. Where the sandbox still
// runs, the engine tries again and the journal has kept everything.
func (t *Turns) turnError(ctx context.Context, turn *turn, err error) error {
	if TypeOf(err) != "" {
		return err
	}
	err = lostOr(ctx, turn.sandbox, err)
	if TypeOf(err) == SandboxLost && !turn.mayHaveDelivered {
		return final(PromptNotDelivered, err)
	}
	if TypeOf(err) == SandboxLost && exceeded(err) {
		return final(SandboxLimit, errors.New(ReasonOf(err)))
	}
	return err
}

// turn is one attempt at a run.
type turn struct {
	*Turns
	in      TurnRequest
	start   session.RunStart
	token   string
	adapter agent.Adapter
	*convert
	remasked time.Time // when the stored secrets were read last
	sandbox  *sandbox.Sandbox
	pulse    *pulse

	frame int64          // the newest frame whose events are committed
	end   *agent.TurnEnd // set once the frame that ended the turn is committed
	// closed: the journal gets no more frames than lastFrame, because the runner
	// was interrupted while it had the run.
	closed    bool
	lastFrame int64
	// mayHaveDelivered is false only while it is certain that no attempt at this
	// run has handed the prompt to a runner.
	mayHaveDelivered bool

	suspicion   suspicion
	permissions session.Permissions
	waiting     waiting
	files       fileGatherer
	// tooLargeTold: the log says that the workspace has too many files.
	tooLargeTold bool
}

func (t *Turns) newTurn(ctx context.Context, in TurnRequest, start session.RunStart, token string) (*turn, error) {
	adapter, err := t.Agents.Get(start.Agent)
	if err != nil {
		return nil, final(Refused, err)
	}
	resumed, end, err := t.resume(ctx, start)
	if err != nil {
		return nil, err
	}
	return &turn{
		Turns: t, in: in, start: start, token: token, adapter: adapter, convert: resumed, remasked: time.Now(), end: end,
		sandbox: t.Sandbox.Open(in.SandboxID), frame: start.Run.LastFrame,
		mayHaveDelivered: start.Run.Attempt > 1,
		permissions:      permissionsOf(start),
		files:            newFileGatherer(start.Files, in.Generation),
	}, nil
}

// run attaches, delivers where that is needed, and follows the frames to the end
// of the turn.
func (t *turn) run(ctx context.Context) (err error) {
	link, err := t.attach(ctx)
	if err != nil {
		return fmt.Errorf("attach to the runner: %w", err)
	}
	t.pulse.progress()
	if err := t.countFiles(ctx); err != nil {
		link.close()
		return err
	}
	if err := t.suspect(ctx, link.link.Welcome()); err != nil {
		link.close()
		return err
	}
	// A write to a runner that does not read takes no context: what ends it is the end of its exec's link.
	unblock := context.AfterFunc(ctx, func() { link.process.Close() })
	defer unblock()
	defer func() {
		if err != nil {
			link.close()
			return
		}
		open, process := link.release()
		t.Links.keep(ctx, t.in.SandboxID, open, process)
	}()
	if t.start.Run.Attempt > 1 {
		t.watchAnswers() // what was asked before this attempt may have been answered since
		t.waiting.again = true
	}
	defer t.stopWatching()
	if t.end == nil {
		watch := t.watchRefusals(ctx)
		defer watch.end()
		if err := t.deliver(ctx, link); err != nil {
			return err
		}
		t.pulse.progress()
		if err := t.resend(link); err != nil {
			return err
		}
		over := func([]runner.Message) bool { return t.end != nil || t.exhausted() }
		if err := t.follow(ctx, link, over, t.pulse.waiting); err != nil {
			return err
		}
	}
	if t.end == nil {
		if err := pauseFor(ctx, t.InterruptedPause); err != nil {
			return err
		}
		return final(DeliveryUnknown, errors.New("the runner was interrupted while it had this run"))
	}
	return t.flush(ctx, link)
}

// errNotFlushed ends the wait for a runner that keeps its link alive and does not say that it has sent everything.
var errNotFlushed = errors.New("the runner has not sent the rest of the transcripts in time")

// flush settles the turn and stores the rest of the transcripts. It takes FlushTimeout at most, whatever the runner does.
func (t *turn) flush(ctx context.Context, link *turnLink) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.FlushTimeout, errNotFlushed)
	defer cancel()
	if err := link.link.Settle(); err != nil {
		return fmt.Errorf("settle the turn: %w", err)
	}
	// The transcript's last lines belong to this turn: a bundle may be all that
	// is left of it a second from now.
	if err := link.link.Flush(flushAtEnd); err != nil {
		return fmt.Errorf("flush the transcripts: %w", err)
	}
	return t.follow(ctx, link, flushed, func() {})
}

// deliver hands the prompt over unless the runner has it from an earlier attempt.
func (t *turn) deliver(ctx context.Context, link *turnLink) error {
	welcome := link.link.Welcome()
	if welcome.Delivery != runner.NotStarted {
		t.mayHaveDelivered = true
		if !welcome.Open {
			t.closed, t.lastFrame = true, welcome.LastFrame
		}
		return nil
	}
	start, err := t.prompt(ctx)
	if err != nil {
		return err
	}
	t.mayHaveDelivered = true
	if err := link.link.Start(start); err != nil {
		return fmt.Errorf("hand the prompt over: %w", err)
	}
	return nil
}

// resend sends the agent again what an earlier attempt may have sent over a broken link: the
// frame that asked for it is committed, and none will ask again.
func (t *turn) resend(link *turnLink) error {
	listener, ok := t.translator.(agent.Listener)
	if !ok || t.closed {
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

// prompt returns what the runner must start. The profile is in the sandbox when it returns.
func (t *turn) prompt(ctx context.Context) (runner.Start, error) {
	launch, err := t.launch(ctx)
	if err != nil {
		return runner.Start{}, err
	}
	input, err := t.adapter.Prompt(agent.PromptInput{
		RunID: t.in.RunID, PromptID: t.start.Prompt.ID, Content: t.start.Prompt.Content,
		Author: t.start.Prompt.Author, At: t.start.Run.StartedAt,
	})
	if err != nil {
		return runner.Start{}, final(Refused, fmt.Errorf("prompt for %s: %w", t.start.Agent, err))
	}
	secrets, err := t.secrets(ctx, launch.Secrets)
	if err != nil {
		return runner.Start{}, err
	}
	if err := t.bind(ctx, secrets, launch.Env); err != nil {
		return runner.Start{}, err
	}
	// The agent may say at once what it was given, and a secret may have been stored since this attempt began.
	if err := t.remask(ctx); err != nil {
		return runner.Start{}, fmt.Errorf("read the secrets to mask: %w", err)
	}
	launch.Env = maps.Clone(launch.Env)
	if err := t.reachable(ctx, secrets, launch.Env); err != nil {
		return runner.Start{}, err
	}
	return runner.Start{
		Input:   input,
		Secrets: secrets,
		Launch:  runner.Launch{Argv: launch.Argv, Env: launch.Env, Dir: launch.Dir, Transcripts: launch.Transcripts, Key: launch.Key},
	}, nil
}

// exhausted reports whether every frame that there will ever be is committed.
func (t *turn) exhausted() bool { return t.closed && t.frame >= t.lastFrame }

// follow turns frames into events until done. What has come in while a commit
// was under way is committed together next. It calls waiting before it waits for the
// next message; a loop in which that does nothing must make progress by itself.
func (t *turn) follow(ctx context.Context, link *turnLink, done func([]runner.Message) bool, waiting func()) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var messages []runner.Message
	for !done(messages) {
		waiting()
		var err error
		var changed bool
		if messages, changed, err = link.take(ctx, ticker.C, t.waiting.changed); err != nil {
			return err
		}
		if len(messages) > 0 || t.pulse.isWaiting() {
			t.pulse.progress()
		}
		t.waiting.due = t.waiting.due || changed
		if err := t.handle(ctx, link, t.suspicion.together(messages)); err != nil {
			return err
		}
		if err := t.tellAnswers(ctx, link); err != nil {
			return err
		}
	}
	return nil
}

// commit stores what the messages mean: transcript segments, files, and the events of
// frames with the translator's state after the last of them. What the frames ask
// to be written to the agent is written first: twice does no harm, never does.
func (t *turn) commit(ctx context.Context, link *turnLink, messages []runner.Message) error {
	if segments := t.segments(messages); len(segments) > 0 {
		if err := t.store.TranscriptAppend(ctx, segments); err != nil {
			return t.gap(ctx, err)
		}
		t.pulse.progress()
	}
	if err := t.commitFiles(ctx, messages); err != nil {
		return err
	}
	if len(messages) > 0 {
		t.remaskSometimes(ctx)
	}
	if err := t.handling(ctx, messages); err != nil {
		return err
	}
	next := t.newBatch()
	for _, m := range messages {
		f, ok := m.(*runner.Frame)
		if !ok || next.end != nil {
			continue // frames after the end wait in the journal; no one has asked for them
		}
		if f.No <= next.frame {
			continue
		}
		if err := checkFrame(f.No, next.frame); err != nil {
			return errors.Join(t.append(ctx, next), final(Refused, fmt.Errorf("run %s: %w", t.in.RunID, err)))
		}
		translated, events, err := t.translate(agent.Frame{No: f.No, Stream: agent.Stream(f.Stream), At: f.At, Data: f.Data})
		if err != nil {
			return final(Refused, fmt.Errorf("frame %d of run %s: %w", f.No, t.in.RunID, err))
		}
		if len(translated.Input) > 0 {
			if err := link.link.Input(translated.Input); err != nil {
				return fmt.Errorf("ask the agent to continue: %w", err)
			}
		}
		if err := next.addEvents(events); err != nil {
			return fmt.Errorf("frame %d of run %s: %w", f.No, t.in.RunID, err)
		}
		next.add.Questions = append(next.add.Questions, t.ask(translated.Questions, f.No)...)
		for _, id := range translated.Resolved {
			next.add.Resolved = append(next.add.Resolved, eventlog.Resolution{Frame: f.No, AgentID: id})
		}
		next.frame, next.at, next.end = f.No, f.At, translated.End
		if next.full() {
			if err := t.append(ctx, next); err != nil {
				return err
			}
			next = t.newBatch()
		}
	}
	return t.append(ctx, next)
}

// maxTurnFrames bounds the frames of a turn: an agent's lines cost a worker time, also those that make no events.
const maxTurnFrames = 10_000_000

// checkFrame refuses a frame that does not follow the one before it. A runner numbers the lines of a run without gaps, and
// sends all of them after the one that it is asked for. A number that is taken over is stored as the position of the run,
// so that no frame with a lower one would be read any more.
func checkFrame(no, before int64) error {
	switch {
	case no != before+1:
		return fmt.Errorf("the runner violates its protocol: it sent frame %d after frame %d", no, before)
	case no >= maxTurnFrames:
		return fmt.Errorf("the agent has printed more than %d lines in this turn", maxTurnFrames)
	}
	return nil
}

// gap sorts the errors of storing segments. After a gap the next attempt asks its runner again for what follows the stored
// end, which is what a runner sends. One that leaves gaps again and again is not tried without end.
func (t *turn) gap(ctx context.Context, err error) error {
	if failure.CodeOf(err) != failure.IllegalState {
		return stored(err)
	}
	gaps, countErr := t.store.TranscriptGap(ctx, t.in.SessionID, t.in.RunID)
	if countErr != nil {
		return errors.Join(err, stored(countErr))
	}
	if gaps < session.MaxTranscriptGaps {
		return err
	}
	return final(Refused, fmt.Errorf("the runner violates its protocol: it left %d gaps in transcripts: %w", gaps, err))
}

// refusals is how often the store refuses a batch before its turn fails.
const refusals = 3

func (t *turn) newBatch() *batch {
	return &batch{frame: t.frame, end: t.end, add: eventlog.Append{
		SessionID: t.in.SessionID, RunID: t.in.RunID, Generation: t.in.Generation, Token: t.token,
	}}
}

// append commits a batch. A store that refuses it for what is in it would refuse it again in every
// later attempt, so the turn fails after a few refusals.
func (t *turn) append(ctx context.Context, b *batch) error {
	if b.frame == t.frame {
		if t.suspicion.marked {
			return t.handled(ctx)
		}
		return nil
	}
	events, err := b.events()
	if err != nil {
		return fmt.Errorf("events of run %s: %w", t.in.RunID, err)
	}
	state, events, err := t.encodeState(b.end, events, b.frame, b.at)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", t.in.RunID, err)
	}
	b.add.LastFrame, b.add.State, b.add.Events = b.frame, state, events
	if err := t.handled(ctx); err != nil {
		return err
	}
	for refused := 1; ; refused++ {
		err := t.Log.Append(ctx, b.add)
		if err == nil {
			break
		}
		if failure.CodeOf(err) != failure.Invalid {
			return err
		}
		if refused == refusals {
			return final(Refused, fmt.Errorf("the events of frames %d to %d cannot be stored: %w", t.frame+1, b.frame, err))
		}
		select {
		case <-time.After(refusedPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.pulse.progress()
	if len(b.add.Questions) > 0 {
		t.watchAnswers()
	}
	// Only now: an end that is not in the log must not end the run.
	t.frame, t.end = b.frame, b.end
	return nil
}

// refusedPause is the time between two tries of a batch that was refused.
const refusedPause = 200 * time.Millisecond

func (t *turn) segments(messages []runner.Message) []session.TranscriptSegment {
	var out []session.TranscriptSegment
	for _, m := range messages {
		if s, ok := m.(*runner.Segment); ok {
			out = append(out, session.TranscriptSegment{
				SessionID: t.in.SessionID, RunID: t.in.RunID,
				Path: s.Path, Version: s.Version, Offset: s.Offset, Data: s.Data,
			})
		}
	}
	return out
}

func (t *turn) log() *slog.Logger {
	return t.Logger.With(slog.String("session_id", t.in.SessionID), slog.String("run_id", t.in.RunID), slog.Int64("attempt", t.start.Run.Attempt))
}
