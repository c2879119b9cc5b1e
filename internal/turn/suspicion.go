package turn

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// noteTimeout bounds the writing of an attempt's record, which the end of the attempt waits
	// for.
	noteTimeout = 2 * time.Second
	// suspectWait is how long an attempt after a loss waits for the frames that its runner says it has.
	suspectWait = 10 * time.Second
)

// suspicion is the handling of frames that were waiting when the previous attempt was lost: the
// attempt handles them together, as the previous one may have done, and records that it does. If it
// is lost too, the record counts against the frames. Attempts that follow an orderly end, and
// nearly all others, write no such records.
type suspicion struct {
	until   int64     // the frames up to this one are suspect; -1 if none is
	expires time.Time // the runner may have reported frames that it does not have
	held    []runner.Message
	bytes   int64
	marked  bool // the handling of the frames is recorded
}

// suspect begins the suspicion, if the attempt before was lost and frames wait.
func (a *attempt) suspect(ctx context.Context, welcome runner.Welcome) error {
	a.suspicion.until = -1
	if !a.start.Suspect || welcome.LastFrame <= a.frame {
		return nil
	}
	a.suspicion = suspicion{until: min(welcome.LastFrame, a.frame+linkBacklog), expires: time.Now().Add(suspectWait)}
	return a.note(ctx, run.DoingReading)
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
func (a *attempt) handling(ctx context.Context, messages []runner.Message) error {
	if a.suspicion.until < 0 || len(messages) == 0 {
		return nil
	}
	a.suspicion.marked = true
	return a.note(ctx, run.DoingHandling)
}

// handled ends the suspicion: the attempt has survived the frames, and stores their events.
func (a *attempt) handled(ctx context.Context) error {
	if a.suspicion.until < 0 {
		return nil
	}
	a.suspicion = suspicion{until: -1}
	return a.note(ctx, run.DoingReading)
}

// note records the attempt's progress with the frames of its run.
func (a *attempt) note(ctx context.Context, doing run.Doing) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return Stored(a.Store.RunDoing(ctx, a.in.RunID, a.token, doing))
}

// leave records that the attempt ended by itself and was not lost. If this fails, the next attempt
// assumes a loss at that position, which has no consequence by itself.
func (a *attempt) leave(ctx context.Context) {
	if err := a.note(context.WithoutCancel(ctx), run.DoingNothing); err != nil {
		a.log().WarnContext(ctx, "could not record the end of an attempt", slog.Any("error", err))
	}
}

// handle is commit, with a record of a panic, which the SDK makes an error of the attempt.
func (a *attempt) handle(ctx context.Context, link *turnLink, messages []runner.Message) error {
	panicked := true
	defer func() {
		if !panicked {
			return
		}
		if err := a.note(context.WithoutCancel(ctx), run.DoingPanicked); err != nil {
			a.log().ErrorContext(ctx, "could not record a panic", slog.Any("error", err))
		}
	}()
	err := a.commit(ctx, link, messages)
	panicked = false
	return err
}
