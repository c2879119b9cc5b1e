package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// noteTimeout bounds a record of what an attempt does. An attempt that ends waits for it.
	noteTimeout = 2 * time.Second
	// suspectWait is how long an attempt after a loss waits for the frames that its runner says it has.
	suspectWait = 10 * time.Second
)

// suspicion is how an attempt at a run handles the frames that were waiting when the attempt before it was lost: all
// together, as that one may have done, with a record of what it does. If it is lost too, the record counts against
// the frames. Attempts after an orderly end, and nearly all others, write no such records.
type suspicion struct {
	until   int64     // the frames up to this one are suspect; -1 if none is
	expires time.Time // a runner may have lied about what it has
	held    []runner.Message
	bytes   int64
	marked  bool // it is recorded that they are being handled
}

// suspect begins the suspicion, if the attempt before was lost and frames wait.
func (t *turn) suspect(ctx context.Context, welcome runner.Welcome) error {
	t.suspicion.until = -1
	if !t.start.Suspect || welcome.LastFrame <= t.frame {
		return nil
	}
	t.suspicion = suspicion{until: min(welcome.LastFrame, t.frame+linkBacklog), expires: time.Now().Add(suspectWait)}
	return t.note(ctx, session.DoingReading)
}

// together returns the messages to handle now: none while suspect frames are on their way.
func (s *suspicion) together(messages []runner.Message) []runner.Message {
	if s.until < 0 {
		return messages
	}
	s.held = append(s.held, messages...)
	complete := !time.Now().Before(s.expires)
	for _, m := range messages {
		s.bytes += weight(m)
		f, ok := m.(*runner.Frame)
		complete = complete || ok && f.No >= s.until
	}
	if !complete && s.bytes < linkBytes {
		return nil
	}
	messages, s.held = s.held, nil
	return messages
}

// handling records that suspect frames are being handled.
func (t *turn) handling(ctx context.Context, messages []runner.Message) error {
	if t.suspicion.until < 0 || len(messages) == 0 {
		return nil
	}
	t.suspicion.marked = true
	return t.note(ctx, session.DoingHandling)
}

// handled ends the suspicion: the attempt has survived the frames, and stores what they mean.
func (t *turn) handled(ctx context.Context) error {
	if t.suspicion.until < 0 {
		return nil
	}
	t.suspicion = suspicion{until: -1}
	return t.note(ctx, session.DoingReading)
}

// note records what the attempt does with the frames of its run.
func (t *turn) note(ctx context.Context, doing session.Doing) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return stored(t.store.RunDoing(ctx, t.in.RunID, t.token, doing))
}

// leave records that the attempt ended by itself: it was not lost. If it cannot, the next attempt takes it for a loss
// at a position where none may have been, which has no consequence by itself.
func (t *turn) leave(ctx context.Context) {
	if err := t.note(context.WithoutCancel(ctx), session.DoingNothing); err != nil {
		t.log().WarnContext(ctx, "could not record the end of an attempt", slog.Any("error", err))
	}
}

// handle is commit, with a record of a panic, which the SDK makes an error of the attempt.
func (t *turn) handle(ctx context.Context, link *turnLink, messages []runner.Message) error {
	panicked := true
	defer func() {
		if !panicked {
			return
		}
		if err := t.note(context.WithoutCancel(ctx), session.DoingPanicked); err != nil {
			t.log().ErrorContext(ctx, "could not record a panic", slog.Any("error", err))
		}
	}()
	err := t.commit(ctx, link, messages)
	panicked = false
	return err
}

// quarantine ends a run whose frames have ended workers. Its agent is interrupted, its frames are not read any more,
// and the session continues with its next prompt.
func (t *Turns) quarantine(ctx context.Context, in TurnRequest, start session.RunStart) (TurnResult, error) {
	logger := t.Logger.With(slog.String("session_id", in.SessionID), slog.String("run_id", in.RunID))
	logger.ErrorContext(ctx, "quarantined run: workers were lost while they handled its output",
		slog.Int64("frame", start.Run.LastFrame), slog.Int64("attempt", start.Run.Attempt))
	if err := t.runners.interrupt(ctx, AbortRequest{
		SessionID: in.SessionID, Agent: start.Agent, RunID: in.RunID, Generation: in.Generation, SandboxID: in.SandboxID,
	}); err != nil {
		logger.WarnContext(ctx, "could not interrupt the agent of a quarantined run", slog.Any("error", err))
	}
	message := fmt.Sprintf("Workers were lost while they handled what the agent printed after frame %d. "+
		"The rest of its output in this turn is not read.", start.Run.LastFrame)
	if err := t.store.ProblemTell(ctx, in.SessionID, session.ReasonQuarantined, message); err != nil {
		return TurnResult{}, stored(err)
	}
	ending := session.RunEnding{RunID: in.RunID, Outcome: session.OutcomeFailed, Reason: session.ReasonQuarantined}
	if err := t.settleDamaged(ctx, ending, logger); err != nil {
		return TurnResult{}, err
	}
	return t.superseded(ctx, in, errors.New("the run is quarantined"))
}

// settleDamaged is settle for a run whose stored state may make its adapter panic: then blocks stay open rather than
// the session stuck.
func (t *Turns) settleDamaged(ctx context.Context, ending session.RunEnding, logger *slog.Logger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			logger.ErrorContext(ctx, "the state of a quarantined run cannot be read", slog.Any("panic", p))
			_, err = t.store.RunEnd(ctx, ending)
			err = stored(err)
		}
	}()
	return t.settle(ctx, ending)
}
