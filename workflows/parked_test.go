package workflows_test

import (
	"errors"
	"time"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// ask parks the turn of a prompt that asks people, unless the question is answered before. A
// question is asked once. ask returns the time at which the turn ends if it is not parked.
func (w *world) ask(o *operation) time.Time {
	run, p := o.run, w.prompt(o.run.promptID)
	if !p.asks || run.answered || run.part > 0 {
		return run.endsAt
	}
	if run.expires.IsZero() {
		w.say("%s asks", p.ID)
		run.expires = w.clock.now().Add(w.expiry)
	}
	ends := run.expires.Add(p.takes)
	if o.turn.ParkAfter <= 0 {
		return ends
	}
	w.clock.after(o.turn.ParkAfter, w.locked(func() {
		if o.ended || o.frozen || run.outcome != "" || run.answered || run.parked || !w.sandbox(run.generation).alive {
			return
		}
		for _, c := range w.pendingCommands() {
			if c.Force || c.Kind == session.CommandStop || c.Kind == session.CommandAbort {
				return
			}
		}
		run.parked, run.delivered, w.attendant = true, false, nil
		w.say("%s is parked", p.ID)
		w.finish(o, activities.TurnResult{Attended: o.attended, Parked: &session.Processing{
			PromptID: p.ID, Ordinal: p.Ordinal, RunID: run.id, Generation: run.generation, OnUnknown: p.policy, Part: run.part, Parked: true,
		}}, nil)
	}))
	return ends
}

// answer answers the question of a prompt, and reports whether the workflow must be signalled.
func (w *world) answer(id string) (notify bool) {
	p := w.prompt(id)
	run := w.runs[p.runID]
	if run == nil || run.outcome != "" || run.answered || run.expires.IsZero() || !w.clock.now().Before(run.expires) {
		w.say("the answer to %s is refused", id)
		return false
	}
	run.answered = true
	w.say("%s is answered", id)
	if run.parked {
		w.signalled = true
		return true
	}
	for _, o := range w.operations {
		if o.run == run {
			w.endTurnAt(o, w.clock.now().Add(p.takes))
		}
	}
	return false
}

// continueRun gives a parked run to the newest sandbox.
func (w *world) continueRun(in activities.ContinueRequest) (activities.Continuation, error) {
	run := w.runs[in.RunID]
	switch {
	case run.outcome != "":
		return activities.Continuation{Ended: true}, nil
	case w.state != session.Running || in.Generation != w.generation:
		return activities.Continuation{}, final(activities.Fenced, "the session is %s in generation %d", w.state, w.generation)
	case run.parked && run.generation == in.Generation:
		w.violate("%s continues in the sandbox in which its agent waits", run.promptID)
	case !run.parked && run.generation != in.Generation:
		return activities.Continuation{}, final(activities.Fenced, "it is not parked")
	case !run.parked:
		return activities.Continuation{Granted: true, Dispatch: run.dispatch, Part: run.part}, nil
	case !run.answered && w.clock.now().Before(run.expires):
		return activities.Continuation{Until: run.expires}, nil
	}
	what := "the answer"
	if !run.answered {
		what, run.answered = "a rejection, because it has expired", true
	}
	run.parked, run.generation, run.part, run.dispatch = false, in.Generation, run.part+1, run.dispatch+1
	w.prompt(run.promptID).deliveries = 0 // the continued run delivers the answer, once
	w.say("%s continues with %s", run.promptID, what)
	return activities.Continuation{Granted: true, Dispatch: run.dispatch, Part: run.part}, nil
}

func (c *cast) answer(id string) error {
	w := c.stage.world
	if w.prompt(id) == nil { // the session had ended, or was in error
		return nil
	}
	if w.answer(id) {
		w.signals++
		c.stage.signal(contract.SignalCommands, nil, true)
	}
	return nil
}

// answerAll answers all open questions and prevents turns from asking more.
func (c *cast) answerAll() (err error) {
	for _, p := range c.stage.world.prompts {
		if p.asks {
			p.asks = false
			err = errors.Join(err, c.answer(p.ID))
		}
	}
	return err
}
