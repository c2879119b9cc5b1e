package turn

import (
	"context"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Prompts of the mode steer are sent to the agent during the running turn, one at a time: the next
// prompt is sent once the agent has accepted or declined the previous one. The store assigns a
// prompt to the attempt, then the translator is notified, and only then is the prompt sent, so that
// the turn does not end while a prompt is being delivered. A worker that takes over gets the same
// prompts and sends them again; the runner writes each prompt to the agent once.
//
//	store ──SteersTake──▶ attempt ──Expect──▶ translator        from here on the turn does not end
//	                         └──────Steer──▶ runner ──stdin──▶ agent
//	store ◀─SteersSettle─ attempt ◀────── a frame with the agent's response to the prompt

// steerStore stores the prompts for running turns.
type steerStore interface {
	// SteersWait reports whether SteersTake may return another prompt. It locks nothing.
	SteersWait(ctx context.Context, runID string) (bool, error)
	// SteersTake returns the prompts that were already taken for the running turn and, on request,
	// the next one.
	SteersTake(ctx context.Context, t run.SteerTake) ([]session.Prompt, error)
	// SteersSettle records that the agent has accepted prompts. It has no effect unless the token
	// is the run's newest.
	SteersSettle(ctx context.Context, t run.SteerTaken) error
}

// lookForSteers is the interval at which the rows of prompts for the turn are read without a
// notification.
const lookForSteers = 10 * time.Second

// steering is an attempt's view of the prompts for its running turn.
type steering struct {
	steerer agent.Steerer // nil if the agent or its runner does not support them
	changed <-chan struct{}
	stop    func()
	due     bool
	looked  time.Time
	waits   bool            // the agent has neither accepted nor declined a sent prompt
	sent    map[string]bool // prompts sent by this attempt
}

// beginSteering enables prompts for the running turn if the agent accepts them. Prompts that the
// previous attempt took are sent again before any frame is read, because a frame may contain the
// end of the turn.
func (a *attempt) beginSteering(ctx context.Context, link *turnLink) error {
	steerer, ok := a.adapter.(agent.Steerer)
	if _, expects := a.translator.(agent.Expecter); !ok || !expects || !link.welcome().Steers || a.closed {
		return nil
	}
	a.steering = steering{steerer: steerer, looked: time.Now(), sent: map[string]bool{}}
	if a.Changes != nil {
		a.steering.changed, a.steering.stop = a.Changes.Watch(run.SteerTopic(a.in.SessionID))
	}
	if a.start.Run.Attempt <= 1 && a.start.Run.Part == 0 {
		return nil
	}
	a.steering.due = true
	return a.takeSteers(ctx, link, false)
}

func (a *attempt) stopSteering() {
	if a.steering.stop != nil {
		a.steering.stop()
	}
	a.steering = steering{}
}

// steer sends the agent the next prompt for its turn, if it has accepted or declined the previous
// one.
func (a *attempt) steer(ctx context.Context, link *turnLink) error {
	s := &a.steering
	if s.steerer == nil || a.ended() != nil || a.exhausted() {
		return nil
	}
	s.due, link.steered = s.due || link.steered, false
	if s.waits || !s.due && time.Since(s.looked) < lookForSteers {
		return nil
	}
	if !s.due {
		waits, err := a.Store.SteersWait(ctx, a.in.RunID)
		if err != nil {
			return Stored(err)
		}
		if s.looked = time.Now(); !waits {
			return nil
		}
	}
	return a.takeSteers(ctx, link, true)
}

func (a *attempt) takeSteers(ctx context.Context, link *turnLink, more bool) error {
	s := &a.steering
	part := a.start.Run.Part
	prompts, err := a.Store.SteersTake(ctx, run.SteerTake{RunID: a.in.RunID, Token: a.token, Part: part, More: more})
	if err != nil {
		return Stored(err)
	}
	a.progress.Made()
	s.due, s.waits, s.looked = !more, false, time.Now()
	expecter := a.translator.(agent.Expecter) //nolint:forcetypeassert // beginSteering has looked
	for _, p := range prompts {
		if !expecter.Expect(agent.Steered{PromptID: p.ID, Author: p.Author}) {
			continue
		}
		if s.waits = true; s.sent[p.ID] {
			continue
		}
		data, err := s.steerer.Steer(agent.PromptInput{RunID: a.agentRun(), PromptID: p.ID, Content: p.Content, Author: p.Author, At: p.StartedAt})
		if err != nil {
			return final(Refused, fmt.Errorf("give %s a prompt in its turn: %w", a.start.Agent, err))
		}
		if err := link.link.Steer(p.ID, data); err != nil {
			return fmt.Errorf("give the agent a prompt in its turn: %w", err)
		}
		s.sent[p.ID], a.lastActive = true, time.Now()
	}
	return nil
}

// settleSteers records which prompts the agent has accepted or declined, before the frame that
// reports it is committed. Recording twice is harmless.
func (a *attempt) settleSteers(ctx context.Context, verdicts []agent.SteerVerdict) error {
	taken := run.SteerTaken{RunID: a.in.RunID, Token: a.token, Part: a.start.Run.Part}
	for _, v := range verdicts {
		if v.Taken {
			taken.PromptIDs = append(taken.PromptIDs, v.PromptID)
		}
	}
	a.steering.waits, a.steering.due = false, true
	if len(taken.PromptIDs) == 0 {
		return nil
	}
	if err := a.Store.SteersSettle(ctx, taken); err != nil {
		return Stored(err)
	}
	a.progress.Made()
	return nil
}
