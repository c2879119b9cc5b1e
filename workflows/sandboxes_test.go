package workflows_test

import (
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (f *fakes) CreateSandbox(ctx context.Context, in activities.SandboxRequest) (activities.SandboxReady, error) {
	return f.provision(ctx, "CreateSandbox", in)
}

func (f *fakes) RestoreSandbox(ctx context.Context, in activities.SandboxRequest) (activities.SandboxReady, error) {
	return f.provision(ctx, "RestoreSandbox", in)
}

// provision implements both CreateSandbox and RestoreSandbox. The sandbox exists at the provider
// from the start, and a cancelled activity leaves it there.
func (f *fakes) provision(ctx context.Context, activity string, in activities.SandboxRequest) (activities.SandboxReady, error) {
	var row *sandboxRow
	adopted := false
	begin := func(w *world) (err error) {
		if in.Then != nil && w.transitionNo >= in.Then.No && in.Generation != w.generation {
			return final(activities.Fenced, "transition %d was recorded by another attempt", in.Then.No)
		}
		if before := w.sandbox(in.Generation - 1); !in.Fresh && activity == "RestoreSandbox" && before != nil && before.alive && before.ready {
			row, adopted = before, true
			w.say("resume the sandbox of generation %d", row.generation)
			return nil
		}
		if err = w.startable(activity, in.Generation); err != nil {
			return err
		}
		if row, err = w.reserve(in.Generation); err != nil {
			return err
		}
		if err := w.begin(activity); err != nil {
			return err // reserved, but no sandbox was created
		}
		w.say("%s of generation %d", activity, in.Generation)
		w.boot(row)
		return nil
	}
	return during(ctx, f, activity, begin, func(w *world) (activities.SandboxReady, error) {
		if !row.alive {
			row.ended = true
			return activities.SandboxReady{}, final(activities.GenerationUnusable, "the runner does not answer")
		}
		row.ready = true
		if w.doomed > 0 {
			w.doomed--
			w.alarm(100*time.Millisecond, func() {
				w.say("sandbox of generation %d ends by itself", row.generation)
				w.kill(row)
			})
		}
		answer := activities.SandboxReady{Generation: row.generation, SandboxID: row.id, Deadline: row.deadline}
		if activity == "RestoreSandbox" && !adopted {
			answer.Receipt = &receipt.Receipt{Kind: w.receipt(), Missing: []string{}}
			if in.Fresh {
				answer.Receipt.Kind = receipt.Partial
			}
			if in.Then != nil && !w.earlierWorkers {
				t := *in.Then
				t.Generation, t.Receipt = answer.Generation, answer.Receipt
				answer.Recorded = w.recordsAlong(activity, t)
				if err := w.refuseAfterRecord(answer.Recorded); err != nil {
					return activities.SandboxReady{}, err
				}
				if in.Claim != nil && !answer.Recorded.IsZero() {
					answer.Claimed = w.claimAlong(*in.Claim, answer.Generation)
					w.loseClaim(&answer)
				}
			}
		}
		return answer, nil
	})
}

func (w *world) receipt() receipt.Kind {
	head := w.head()
	switch {
	case head == nil:
		return receipt.Fresh
	case head.verified:
		return receipt.Full
	}
	return receipt.Unverified
}

func (f *fakes) SaveBundle(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "SaveBundle", func(w *world) (activities.Saved, error) {
		if in.Unsaved && !w.unsaved(&in) {
			w.say("nothing is unsaved")
			return activities.Saved{}, nil
		}
		if saved, ok := w.savedBefore(in); ok {
			return w.release(in, saved), nil
		}
		s := w.sandbox(in.Generation)
		if s == nil || !s.alive {
			w.say("SaveBundle finds the sandbox gone")
			return activities.Saved{}, final(activities.SandboxLost, "the sandbox has ended")
		}
		return w.release(in, w.commit(in, true)), nil
	})
}

// release terminates the sandboxes of a saved session if the request asks for it and
// TerminateSandbox has no injected fault.
func (w *world) release(in activities.SaveRequest, saved activities.Saved) activities.Saved {
	const activity = "TerminateSandbox"
	if in.Release == "" || w.earlierWorkers || w.takes[activity] > time.Second {
		return saved
	}
	if faults := w.faults[activity]; len(faults) > 0 {
		w.faults[activity] = faults[1:]
		w.say("SaveBundle cannot terminate the sandbox: %v", faults[0])
		return saved
	}
	for _, s := range w.sandboxes {
		w.terminate(s)
	}
	saved.Released = true
	if in.Then == nil {
		return saved
	}
	saved.Recorded = w.recordsAlong("SaveBundle", *in.Then)
	return saved
}

// recordsAlong records a transition at the end of another activity and returns its time, or the
// zero time if recording fails.
func (w *world) recordsAlong(activity string, t session.Transition) time.Time {
	const record = "RecordTransition"
	err := error(nil)
	if faults := w.faults[record]; len(faults) > 0 {
		w.faults[record], err = faults[1:], faults[0]
	}
	t.At = w.clock.now()
	if err == nil {
		err = w.transit(t)
	}
	if err != nil {
		w.say("%s cannot record the transition: %v", activity, err)
		return time.Time{}
	}
	return t.At
}

func (f *fakes) RescueBundle(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "RescueBundle", func(w *world) (activities.Saved, error) {
		if in.Unsaved && !w.unsaved(&in) {
			w.say("nothing is unsaved")
			return activities.Saved{}, nil
		}
		if saved, ok := w.savedBefore(in); ok {
			return saved, nil
		}
		// A sandbox has remains to rescue if a turn has run or a bundle was made.
		for _, run := range w.runs {
			if run.delivered {
				return w.commit(in, false), nil
			}
		}
		if w.head() != nil {
			return w.commit(in, false), nil
		}
		w.say("nothing is left to save")
		return activities.Saved{}, nil
	})
}

func (f *fakes) DropSandbox(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "DropSandbox", func(w *world) (activities.Saved, error) {
		if saved, ok := w.savedBefore(in); ok {
			return saved, nil
		}
		w.say("the transcript of generation %d is stored", in.Generation)
		return w.commit(in, false), nil
	})
}

func (f *fakes) RevertSession(ctx context.Context, in activities.RevertRequest) error {
	_, err := take(ctx, f, "RevertSession", func(w *world) (nothing, error) {
		s := w.sandbox(in.Generation)
		if s == nil || !s.alive {
			w.say("RevertSession finds the sandbox gone")
			return nothing{}, final(activities.SandboxLost, "the sandbox has ended")
		}
		asked := slices.ContainsFunc(w.operations, func(o *operation) bool { return o.activity == "RevertSession" })
		for _, r := range w.runs {
			switch {
			case r.outcome != "" || !r.delivered:
			case asked:
				w.violate("reverted while %s runs", r.promptID)
			default: // the requesting workflow was discarded, and the next one does not know of the activity
				return nothing{}, final(activities.Fenced, "a turn is in progress")
			}
		}
		w.say("reverted to before %s", in.PromptID)
		return nothing{}, nil
	})
	return err
}

// unsaved returns the newest sandbox with work that no bundle covers.
func (w *world) unsaved(in *activities.SaveRequest) bool {
	head := w.head()
	for _, s := range slices.Backward(w.sandboxes) {
		if s.worked && s.id != "" && (head == nil || s.generation > head.generation || s.generation == head.generation && head.checkpoint) {
			in.Generation, in.SandboxID = s.generation, s.id
			return true
		}
	}
	return false
}

func (w *world) savedBefore(in activities.SaveRequest) (activities.Saved, bool) {
	head := w.head()
	if head == nil || head.id != in.BundleID && (head.generation != in.Generation || head.checkpoint) {
		return activities.Saved{}, false
	}
	return activities.Saved{BundleID: head.id, Verified: head.verified}, true
}

func (w *world) commit(in activities.SaveRequest, verified bool) activities.Saved {
	w.bundles = append(w.bundles, bundleRow{
		id: in.BundleID, generation: in.Generation, verified: verified, checkpoint: in.Checkpoint,
	})
	kind := "verified"
	if !verified {
		kind = "unverified"
	}
	what := "bundle"
	if in.Checkpoint {
		what = "checkpoint"
	}
	w.say("saved a %s of generation %d, %s", what, in.Generation, kind)
	return activities.Saved{BundleID: in.BundleID, Verified: verified}
}

func (f *fakes) TerminateSandbox(ctx context.Context, in activities.SandboxRef) error {
	_, err := take(ctx, f, "TerminateSandbox", func(w *world) (nothing, error) {
		for _, s := range w.sandboxes {
			if s.alive && (in.Reason == "hibernated" || in.Reason == "in error" && s.worked) && (w.head() == nil || w.head().generation != s.generation || w.head().checkpoint) {
				w.violate("sandbox of generation %d terminated before it was saved", s.generation)
			}
			w.terminate(s)
		}
		return nothing{}, nil
	})
	return err
}

func (f *fakes) FlushSandbox(ctx context.Context, in activities.SandboxRef) error {
	_, err := take(ctx, f, "FlushSandbox", func(w *world) (nothing, error) {
		w.say("final output of generation %d", in.Generation)
		return nothing{}, nil
	})
	return err
}
