package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// attendantStore stores attendances of sessions.
type attendantStore interface {
	// AttendantLeave ends an attendance and returns the pending commands and prompts for the
	// workflow; nil if the session has another attendant, or none.
	AttendantLeave(ctx context.Context, sessionID, attendant, workflowRunID string) (*session.Look, error)
	// RunClaim claims the next prompt for an attendant, with the attempt that runs it.
	RunClaim(ctx context.Context, c run.Claim) (run.Claimed, error)
}

const (
	// claimPause is the pause before a claim that Postgres has not answered is repeated.
	claimPause = 500 * time.Millisecond
	// takenBackPause is how long an attendant waits, when a command is pending, for the workflow to take
	// the session back. The command's signal makes the workflow do what the attendant would do: end the
	// attendance, and read what waits. If both did it, they would only delay each other.
	takenBackPause = time.Second
)

// attendant attends a session after a turn, if the request and the worker allow that. The session's
// row has its token, its generation and the workflow run that it works for; each claim is refused
// if one of them has changed, or if anything other than a prompt waits. So an attendant that was
// frozen, or that has lost Temporal, is harmless: it cannot claim, and a run that it has claimed is
// fenced like any other when another attempt attaches to it.
//
//	the turn ends: the row has its token ──▶ wait: a change of the session's log ──▶ claim ──▶ run the turn ──┐
//	              ▲                             │ time is up, the place or the worker is wanted, or no claim  │
//	              │                             ▼ is possible any more                                        │
//	              │                          leave: the row has no token; report what waits                   │
//	              └───────────────────────────────────────────────────────────────────────────────────────────┘
type attendant struct {
	t     *Turns
	in    TurnRequest
	pulse *pulse
	place *place

	token   string
	left    int // prompts that it may still claim
	runs    []string
	prompts []string // of the runs
	ordinal int64
	// refusedTo is that of the last turn: no other turn uses the sandbox during the attendance.
	refusedTo *int64
	// greeting opens the link of the next run; nil if there is none.
	greeting *turn.Greeting

	changed <-chan struct{} // the session's log has grown, other than by a turn; nil until the first turn is about to end
	unwatch func()
}

func (t *Turns) newAttendant(in TurnRequest, pulse *pulse, place *place) *attendant {
	a := &attendant{t: t, in: in, pulse: pulse, place: place}
	if in.Attend != nil && in.Look && t.Attend > 0 {
		a.left, a.token = in.Attend.MaxPrompts, turn.NewToken()
	}
	return a
}

func (a *attendant) stop() {
	a.abandon()
	if a.unwatch != nil {
		a.unwatch()
	}
}

// greet opens the link of a run whose claim is being committed.
func (a *attendant) greet(ctx context.Context, start run.Start) {
	if a.greeting == nil {
		in := a.in
		in.RunID = start.Run.ID
		a.greeting = a.t.runs.Greet(ctx, a.t.request(in, start))
	}
}

// greeted returns the greeting for the run that begins, which then owns it.
func (a *attendant) greeted() *turn.Greeting {
	g := a.greeting
	a.greeting = nil
	return g
}

func (a *attendant) abandon() { a.greeted().Abandon() }

// ready returns the token that requests an attendance when a turn ends, or "". Changes after this
// call are not missed.
func (a *attendant) ready() string {
	until := time.Time{}
	if a.in.Attend != nil {
		until = a.in.Attend.Until
	}
	if a.left <= 0 || a.t.Shutdown.isSet() || !until.IsZero() && !time.Now().Before(until) || !a.place.spare() {
		return ""
	}
	if a.unwatch == nil {
		a.changed, a.unwatch = a.t.Changes.Watch(a.in.SessionID)
	}
	select {
	case <-a.changed: // discard changes before the turn's end, which reads the pending prompts
	default:
	}
	return a.token
}

// report adds the attendant's runs to the result of the last run.
func (a *attendant) report(result TurnResult) TurnResult {
	if len(a.runs) > 0 {
		result.Attended = &Attended{Runs: a.runs, PromptIDs: a.prompts, Ordinal: a.ordinal}
	}
	return result
}

// next waits for the next prompt and claims it. It returns nil without an error if the attendance
// has ended; result then lists the pending commands and prompts for the workflow.
func (a *attendant) next(ctx context.Context, result *TurnResult) (*run.Start, error) {
	a.pulse.Waiting()
	a.place.rest()
	defer a.place.rise()
	timer := time.NewTimer(a.waitLimit(result.Waiting))
	defer timer.Stop()
	claim := run.Claim{
		SessionID: a.in.SessionID, Attendant: a.token, Generation: a.in.Generation,
		RunID: session.NewID(session.RunPrefix), Token: turn.NewToken(), Attempt: int64(activity.GetInfo(ctx).Attempt),
		Expected: func(start run.Start) { a.greet(ctx, start) },
	}
	due := result.Waiting == nil || result.Waiting.Queued > 0
	changed, takenBack := a.changed, (<-chan time.Time)(nil)
	for {
		if due {
			claimed, err := a.claim(ctx, claim)
			switch {
			case err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errHandOver):
				return nil, ctx.Err()
			case err != nil: // the claim may have succeeded nevertheless
				a.t.Logger.WarnContext(ctx, "an attendant could not claim a prompt; the workflow reads the session again",
					slog.String("session_id", a.in.SessionID), slog.Any("error", err))
				result.Waiting, result.Reread = nil, true
				return nil, nil
			case claimed.Start != nil:
				a.pulse.Made()
				a.left--
				a.runs, a.prompts = append(a.runs, claimed.Start.Run.ID), append(a.prompts, claimed.Start.Prompt.ID)
				a.ordinal = claimed.Start.Prompt.Ordinal
				return claimed.Start, nil
			case claimed.Commanded && takenBack == nil:
				pause := time.NewTimer(takenBackPause)
				defer pause.Stop()
				changed, takenBack = nil, pause.C
			case !claimed.Attended:
				a.leave(ctx, result)
				return nil, nil
			}
		}
		select {
		case <-changed:
			due = true
			continue
		case <-takenBack:
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errHandOver) {
				return nil, ctx.Err() // the workflow has taken the session back, or another attempt has begun
			}
		case <-timer.C:
		case <-a.place.wanted:
		}
		a.leave(ctx, result)
		return nil, nil
	}
}

// waitLimit returns how long the attendant waits for a prompt. It ends before the session must
// hibernate or move.
func (a *attendant) waitLimit(waiting *Waiting) time.Duration {
	d := min(a.in.Attend.For, a.t.Attend)
	if waiting != nil && waiting.IdleTimeout > 0 {
		d = min(d, waiting.IdleTimeout-deadline.SleepNotice(waiting.IdleTimeout)) // the workflow announces that the session hibernates
	}
	if until := a.in.Attend.Until; !until.IsZero() {
		d = min(d, time.Until(until))
	}
	return d
}

// claim repeats the claim until Postgres answers, because a claim whose answer was lost may have
// succeeded.
func (a *attendant) claim(ctx context.Context, c run.Claim) (run.Claimed, error) {
	byWorkflow := session.WithWorkflowRun(ctx, activity.GetInfo(ctx).WorkflowExecution.RunID)
	for {
		claimed, err := a.claimOnce(byWorkflow, c)
		if err == nil || failure.CodeOf(err) != failure.Unavailable {
			if claimed.Start == nil {
				a.abandon()
			}
			return claimed, err
		}
		// The link occupies the runner, and the repeated claim can do without it. A hello that is on its way
		// stays, because it would displace another link of the same attempt.
		if a.greeting.Answered() {
			a.abandon()
		}
		select {
		case <-time.After(claimPause):
		case <-ctx.Done():
			a.abandon()
			return run.Claimed{}, err
		}
	}
}

func (a *attendant) claimOnce(ctx context.Context, c run.Claim) (run.Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return a.t.store.RunClaim(ctx, c)
}

// leave returns the session to its workflow and reports the pending commands and prompts.
func (a *attendant) leave(ctx context.Context, result *TurnResult) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	run := activity.GetInfo(ctx).WorkflowExecution.RunID
	look, err := a.t.store.AttendantLeave(session.WithWorkflowRun(ctx, run), a.in.SessionID, a.token, run)
	if err != nil {
		a.t.Logger.WarnContext(ctx, "an attendance could not be ended; the workflow reads the session again",
			slog.String("session_id", a.in.SessionID), slog.Any("error", err))
	}
	if err != nil || look == nil {
		result.Waiting, result.Reread = nil, true
		return
	}
	waiting := waitingOf(*look)
	result.Waiting = &waiting
}
