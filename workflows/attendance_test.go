package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// relayAge is the approximate age at which the relays signal for an unclaimed prompt.
	relayAge = 5 * time.Second
	// heartbeatTimeout is the time after which the engine gives the turn of a frozen worker to
	// another worker.
	heartbeatTimeout = 18 * time.Second
	// claimWait is the delay before the api signals for a prompt that the attendant should have
	// claimed, and recordAfter the delay before it reports claimed prompts.
	claimWait, recordAfter = 250 * time.Millisecond, 5 * time.Second
	// claimTakes is the time that an attendant needs to notice a change and claim the prompt.
	claimTakes = 2 * time.Millisecond
)

// attendable reports whether the attempt that ended a run may claim the next prompt. In production,
// Postgres decides this.
func (w *world) attendable(o *operation) bool {
	return o.turn.Attend != nil && !w.earlierWorkers && o.run.outcome == session.OutcomeCompleted && len(w.pendingCommands()) == 0 &&
		w.state == session.Running && o.run.generation == w.generation && (w.workflowRun == "" || w.workflowRun == o.engine) &&
		(o.attended == nil || len(o.attended.Runs) < o.turn.Attend.MaxPrompts)
}

// rest lets an attendant wait for the next prompt.
func (w *world) rest(o *operation) {
	o.rests++
	rest, ended := o.rests, w.clock.now()
	w.say("the turn's worker attends")
	w.clock.after(claimTakes, w.locked(func() { w.attendNext(o) }))
	d := min(o.turn.Attend.For, w.idleTimeout-deadline.SleepNotice(w.idleTimeout))
	if until := o.turn.Attend.Until; !until.IsZero() {
		d = min(d, until.Sub(ended))
	}
	w.clock.after(max(d, claimTakes), w.locked(func() {
		if o.rests == rest && o.run.outcome != "" && !o.frozen {
			w.leave(o)
		}
	}))
}

// nudge notifies the attendant of a change.
func (w *world) nudge() {
	if o := w.attendant; o != nil && w.clock != nil {
		w.clock.after(claimTakes, w.locked(func() { w.attendNext(o) }))
	}
}

// attendNext claims the next prompt for an attendant, if there is one.
func (w *world) attendNext(o *operation) {
	if o.ended || o.frozen || o.run.outcome == "" || !slices.Contains(w.operations, o) {
		return
	}
	if w.attendant != o || w.state != session.Running || w.generation != o.run.generation || w.openRun() != nil || len(w.pendingCommands()) > 0 {
		w.leave(o)
		return
	}
	p := w.claimable()
	if p == nil {
		return
	}
	s := w.sandbox(o.run.generation)
	runID := fmt.Sprintf("run_attended_%d", len(w.runs))
	w.claim(p, runID, w.generation)
	o.run = w.runs[runID]
	o.run.attached, o.run.held = true, 1
	if o.attended == nil {
		o.attended = new(activities.Attended)
	}
	o.attended.Runs, o.attended.Ordinal = append(o.attended.Runs, runID), p.Ordinal
	w.say("%s is claimed by the attendant", p.ID)
	if !s.alive {
		w.finish(o, nil, final(activities.PromptNotDelivered, "the sandbox has ended"))
		return
	}
	w.deliver(o.run, p)
	w.endTurnAt(o, w.ask(o))
}

// leave ends an attendance together with its turn.
func (w *world) leave(o *operation) {
	if o.ended {
		return
	}
	result := activities.TurnResult{Outcome: session.OutcomeCompleted, Attended: o.attended, EndedAt: w.lastActivity, Reread: w.attendant != o}
	if w.attendant == o {
		w.attendant = nil
		waiting := w.look()
		result.Waiting = &waiting
	}
	w.say("the attendant leaves")
	w.finish(o, result, nil)
}

// freeze freezes the worker that has the turn. The engine later gives the turn to another worker,
// which continues the run of the request, or finds that it has ended.
func (w *world) freeze() {
	for _, o := range w.operations {
		if o.run == nil || o.frozen {
			continue
		}
		o.frozen = true
		w.say("the worker that has the turn is frozen")
		w.clock.after(heartbeatTimeout, w.locked(func() {
			if o.ended {
				return
			}
			o.frozen = false
			if o.turn.Attend == nil || o.attended == nil && o.run.outcome == "" {
				w.endTurnAt(o, o.run.endsAt)
				return
			}
			w.say("another worker finds that the turn has ended")
			w.finish(o, activities.TurnResult{Outcome: session.OutcomeCompleted, Reread: true}, nil)
		}))
	}
}

func (f *fakes) TakeBack(ctx context.Context, _ activities.SessionRef) (activities.Reclaimed, error) {
	return take(ctx, f, "TakeBack", func(w *world) (activities.Reclaimed, error) {
		w.reads++
		taken := activities.Reclaimed{Waiting: w.look(), LastActivity: w.lastActivity}
		run := w.openRun()
		if run == nil {
			w.say("the workflow takes the session back")
			w.attendant = nil
			return taken, nil
		}
		p := w.prompt(run.promptID)
		taken.Run = &session.Processing{
			PromptID: p.ID, Ordinal: p.Ordinal, RunID: run.id, Generation: run.generation, Dispatch: run.dispatch, OnUnknown: p.policy, Part: run.part,
		}
		return taken, nil
	})
}

// TestTemporalCostOfAttendedPrompt checks that an attended prompt costs only its share of a signal
// and of the workflow task that handles the signal.
func TestTemporalCostOfAttendedPrompt(t *testing.T) {
	t.Parallel()
	commands := func(prompts int) map[string]int {
		script := &strings.Builder{}
		fmt.Fprintln(script, "create idle=15m lifetime=240h attend=20s\nwait 10s")
		for i := range prompts {
			fmt.Fprintf(script, "prompt p%d takes=1s\nwait 10s\n", i+1)
		}
		fmt.Fprintln(script, "\nwait 1m")
		var counted map[string]int
		synctest.Test(t, func(t *testing.T) {
			transcript, c := play(t, script.String())
			require.Empty(t, c.stage.world.violations, transcript)
			for _, p := range c.stage.world.prompts {
				require.Equal(t, session.PromptCompleted, p.status, transcript)
			}
			counted = c.stage.commands
		})
		return counted
	}
	require.Equal(t, commands(3), commands(30))
}
