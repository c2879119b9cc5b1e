package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// exhausted reports whether all frames are committed and no more can arrive.
func (a *attempt) exhausted() bool { return a.closed && a.frame >= a.lastFrame }

// quietTick is the time without a message after which the loop of a turn checks for other due work.
const quietTick = time.Second

// follow turns frames into events until done. Messages that arrive during a commit are committed
// together afterwards. It calls waiting before it waits for the next message. If waiting
// does not mark the attempt as waiting, only messages count as progress.
func (a *attempt) follow(ctx context.Context, link *turnLink, done func([]runner.Message) bool, waiting func()) (err error) {
	defer func() {
		if err != nil {
			a.appendDeferred(ctx)
		}
	}()
	tick := time.NewTimer(quietTick) // an agent that prints needs no ticks
	defer tick.Stop()
	due := time.NewTimer(time.Hour) // for batches that are briefly deferred
	defer due.Stop()
	var messages []runner.Message
	for !done(messages) {
		waiting()
		tick.Reset(quietTick)
		if a.deferred != nil && !a.deferred.due.IsZero() {
			due.Reset(time.Until(a.deferred.due))
		} else {
			due.Stop()
		}
		var changed bool
		if messages, changed, err = link.take(ctx, tick.C, due.C, a.waiting.changed, a.steering.changed); err != nil {
			return err
		}
		if len(messages) > 0 {
			a.lastActive = time.Now()
		}
		if len(messages) > 0 || a.progress.IsWaiting() {
			a.progress.Made()
		}
		a.waiting.due = a.waiting.due || changed
		if err := a.handle(ctx, link, a.suspicion.joined(messages)); err != nil {
			return err
		}
		a.pace(link)
		if err := a.answerCalls(link); err != nil {
			return err
		}
		if err := a.sendAnswers(ctx, link); err != nil {
			return err
		}
		if err := a.steer(ctx, link); err != nil {
			return err
		}
		if err := a.park(ctx, link); err != nil {
			return err
		}
	}
	return nil
}

// appendDeferred commits deferred frames when the attempt fails, since their sandbox may be lost. If
// that fails, the next attempt reads them again, unless it is.
func (a *attempt) appendDeferred(ctx context.Context) {
	if a.deferred == nil || len(a.deferred.add.Events) == 0 && a.deferred.end == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAppendTimeout)
	defer cancel()
	if err := a.append(ctx, a.deferred); err != nil {
		a.log().InfoContext(ctx, "deferred frames were not stored", slog.Any("error", err))
		return
	}
	a.deferred = nil
}

// lastAppendTimeout bounds the commit of deferred frames when the link has ended.
const lastAppendTimeout = time.Second

// pace reports the frames that are handled: those that are committed, and those that are deferred and
// will be committed with the next ones.
func (a *attempt) pace(link *turnLink) {
	if link.pacer == nil {
		return
	}
	frame := a.frame
	if a.deferred != nil {
		frame = a.deferred.frame
	}
	link.pacer.took(frame)
}

// commit stores the contents of the messages: transcript segments, files, and the events of frames
// with the translator's state after the last of them. The input that the frames request for the
// agent is written first, because writing it twice is harmless and losing it is not.
func (a *attempt) commit(ctx context.Context, link *turnLink, messages []runner.Message) error {
	if err := a.commitSegments(ctx, messages); err != nil {
		return err
	}
	if err := a.commitFiles(ctx, messages); err != nil {
		return err
	}
	if len(messages) > 0 {
		a.remaskSometimes(ctx)
	}
	if err := a.handling(ctx, messages); err != nil {
		return err
	}
	a.explain = func(end agent.TurnEnd) string { return a.unauthorized(ctx, end) }
	next := a.deferred
	if a.deferred = nil; next == nil {
		next = a.newBatch()
	}
	for _, m := range messages {
		f, ok := m.(*runner.Frame)
		if !ok || next.end != nil {
			continue // frames after the end stay in the journal for the next run
		}
		if f.No <= next.frame {
			continue
		}
		if err := checkFrame(f.No, next.frame); err != nil {
			return errors.Join(a.append(ctx, next), final(Refused, fmt.Errorf("run %s: %w", a.in.RunID, err)))
		}
		if err := a.addFrame(ctx, link, next, f); err != nil {
			return err
		}
		if next.full() {
			if err := a.append(ctx, next); err != nil {
				return err
			}
			next = a.newBatch()
		}
	}
	if len(messages) > 0 && a.mayWait(next) {
		a.deferred = next
		return nil
	}
	return a.append(ctx, next)
}

// addFrame adds the events of a frame to a batch. It executes a call of a tool, and writes the
// input that the frame requests to the agent.
func (a *attempt) addFrame(ctx context.Context, link *turnLink, next *batch, f *runner.Frame) error {
	read := a.translate
	if f.Stream == runner.Call {
		effect, err := a.send(ctx, f.No, a.effectOf(f.Data))
		if err != nil {
			return err
		}
		read = func(f agent.Frame) (translation, error) { return a.report(f, effect) }
		next.urgent = true
	}
	translated, err := read(agent.Frame{No: f.No, Stream: agent.Stream(f.Stream), At: f.At, Data: f.Data})
	if err != nil {
		return final(Refused, fmt.Errorf("frame %d of run %s: %w", f.No, a.in.RunID, err))
	}
	if len(translated.Input) > 0 {
		if err := link.link.Input(translated.Input); err != nil {
			return fmt.Errorf("ask the agent to continue: %w", err)
		}
		next.urgent = true
	}
	if len(translated.Steered) > 0 {
		if err := a.settleSteers(ctx, translated.Steered); err != nil {
			return err
		}
		next.urgent = true
	}
	if err := next.addEvents(translated.events); err != nil {
		return fmt.Errorf("frame %d of run %s: %w", f.No, a.in.RunID, err)
	}
	next.addImages(translated.images)
	next.add.Questions = append(next.add.Questions, a.ask(translated.Questions, f.No)...)
	for _, id := range translated.Resolved {
		next.add.Resolved = append(next.add.Resolved, eventlog.Resolution{Frame: f.No, Part: a.part, AgentID: id})
	}
	next.observe(translated.Events, &a.spoken)
	next.frame, next.at, next.end = f.No, f.At, translated.End
	return nil
}

const (
	// maxDeferral is how long frames without events wait for others to be committed with.
	maxDeferral = time.Second
	// maxPreludeDeferral is how long a prelude waits for the agent's output.
	maxPreludeDeferral = 5 * time.Millisecond
	// maxConclusionDeferral is how long a conclusion waits for the next output or the end of the turn.
	maxConclusionDeferral = 50 * time.Millisecond
)

// mayWait reports whether a batch may be committed with the next, or with the end of the run: its frames
// only change the state of the translator, or are a prelude or a conclusion, possibly with the end of
// the turn. No reader waits for such frames, and a later
// attempt reads them again. Agents print several such lines right before their first words, which would
// otherwise wait for the commits of those lines, and several right before the end of a turn. The exceptions are the first frame of a session, which shows
// the next run that the agent has a conversation to resume, and frames suspected of having ended an
// earlier attempt.
func (a *attempt) mayWait(b *batch) bool {
	silent := len(b.add.Questions)+len(b.add.Resolved)+len(b.images) == 0 && !b.urgent
	if b.end != nil && (b.awaited || a.start.Run.Attempt > 1) { // if the store refuses the last frames, the next attempt appends them
		return false
	}
	if !silent || !a.start.Resume || a.closed || a.suspicion.until >= 0 || time.Since(b.began) >= maxDeferral {
		return false
	}
	return len(b.add.Events) == 0 || !b.awaited && time.Now().Before(b.due)
}

// MaxFrames bounds the frames of a turn, because lines without events also cost worker time.
const MaxFrames = 10_000_000

// checkFrame returns an error for a frame that does not directly follow the previous one. A runner
// numbers the lines of a run without gaps, and sends all lines after the requested one. An accepted
// number becomes the stored position of the run, and frames with lower numbers are not read again.
func checkFrame(no, before int64) error {
	switch {
	case no != before+1:
		return fmt.Errorf("the runner violated its protocol: it sent frame %d after frame %d", no, before)
	case no >= MaxFrames:
		return fmt.Errorf("the agent has printed more than %d lines in this turn", MaxFrames)
	}
	return nil
}

// refusals is the number of refusals of a batch by the store after which its turn fails.
const refusals = 3

func (a *attempt) newBatch() *batch {
	return &batch{frame: a.frame, end: a.end, began: time.Now(), add: eventlog.Append{
		SessionID: a.in.SessionID, RunID: a.in.RunID, Generation: a.in.Generation, Token: a.token,
		Steers: a.steering.steerer != nil,
	}}
}

// ended returns the end of the turn, which may be deferred; nil if there is none yet.
func (a *attempt) ended() *agent.TurnEnd {
	if a.end == nil && a.deferred != nil {
		return a.deferred.end
	}
	return a.end
}

// giveLast leaves a deferred batch with the end of the turn to the caller, who stores it with the
// outcome of the run. That saves a transaction.
func (a *attempt) giveLast(ctx context.Context) error {
	b := a.deferred
	if b == nil || b.end == nil || b.frame == a.frame {
		return nil
	}
	events, err := b.events()
	if err != nil {
		return fmt.Errorf("events of run %s: %w", a.in.RunID, err)
	}
	b.add.LastFrame, b.add.Events = b.frame, events
	if !run.MayBeLast(b.add) { // it has text that was held back until the end of its block
		a.deferred = nil
		return a.append(ctx, b)
	}
	a.deferred, a.lastAppend = nil, &b.add
	a.frame, a.end = b.frame, b.end
	return nil
}

// append commits a batch. A store that refuses its content would refuse it in every later attempt
// too, so the turn fails after a few refusals.
func (a *attempt) append(ctx context.Context, b *batch) error {
	if b.frame == a.frame {
		if a.suspicion.marked {
			return a.handled(ctx)
		}
		return nil
	}
	events, err := b.events()
	if err != nil {
		return fmt.Errorf("events of run %s: %w", a.in.RunID, err)
	}
	state, events, err := a.encodeState(b.end, events, b.frame, b.at)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", a.in.RunID, err)
	}
	b.add.LastFrame, b.add.State, b.add.Events = b.frame, state, events
	if err := a.handled(ctx); err != nil {
		return err
	}
	if err := a.storeImages(ctx, b); err != nil {
		return err
	}
	for refused := 1; ; refused++ {
		err := a.Log.Append(ctx, b.add)
		if err == nil {
			break
		}
		if failure.CodeOf(err) != failure.Invalid {
			return err
		}
		if refused == refusals {
			return final(Refused, fmt.Errorf("the events of frames %d to %d cannot be stored: %w", a.frame+1, b.frame, err))
		}
		select {
		case <-time.After(refusedPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	a.progress.Made()
	if !a.hasCommitted && len(b.add.Events) > 0 {
		a.hasCommitted = true
		trace.SpanFromContext(ctx).AddEvent("first event committed")
	}
	if len(b.add.Questions) > 0 {
		a.watchAnswers()
	}
	// Set these only now: an end that is not in the log must not end the run.
	a.frame, a.end = b.frame, b.end
	return nil
}

// refusedPause is the pause before a refused batch is retried.
const refusedPause = 200 * time.Millisecond

func (a *attempt) log() *slog.Logger {
	logger := a.Logger.With(slog.String("session_id", a.in.SessionID), slog.String("run_id", a.in.RunID), slog.Int64("attempt", a.start.Run.Attempt))
	if id := a.start.Prompt.RequestID; id != "" {
		logger = logger.With(slog.String("request_id", id))
	}
	return logger
}
