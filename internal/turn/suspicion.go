package turn

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// noteTimeout bounds writing an attempt's record, for which the end of the attempt waits.
	noteTimeout = 2 * time.Second
	// suspectWait is how long an attempt after a loss waits for the frames that its runner has
	// announced.
	suspectWait = 10 * time.Second
)

// suspicion handles frames that were waiting when the previous attempt was lost. The attempt
// handles them together, as the previous attempt may have done, and records this first. If this
// attempt is lost too, the record counts against the frames. Attempts that follow an orderly end,
// and nearly all others, write no such record.
type suspicion struct {
	until   int64     // the frames up to this one are suspect; -1 for none
	expires time.Time // end of the wait, since the runner may have announced frames that it does not have
	held    []runner.Message
	bytes   int64
	marked  bool // the record of the handling is written
}

// suspect starts the suspicion if the previous attempt was lost and frames are waiting.
func (a *attempt) suspect(ctx context.Context, welcome runner.Welcome) error {
	a.suspicion.until = -1
	if !a.start.Suspect || welcome.LastFrame <= a.frame {
		return nil
	}
	a.suspicion = suspicion{until: min(welcome.LastFrame, a.frame+linkBacklog), expires: time.Now().Add(suspectWait)}
	return a.note(ctx, run.DoingReading)
}

// joined returns the messages to handle now: none while suspect frames are still arriving.
func (s *suspicion) joined(messages []runner.Message) []runner.Message {
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

// handled ends the suspicion because the attempt has survived the frames and stores their events.
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

// leave records that the attempt ended by itself and was not lost. If recording fails, the next
// attempt assumes a loss at that position, which alone has no consequence.
func (a *attempt) leave(ctx context.Context) {
	if err := a.note(context.WithoutCancel(ctx), run.DoingNothing); err != nil {
		a.log().WarnContext(ctx, "could not record the end of an attempt", slog.Any("error", err))
	}
}

// handle is commit, but also records a panic, which the SDK converts to an error of the attempt.
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
