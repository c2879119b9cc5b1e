package why

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// promptCodes are the codes of the statuses of a prompt.
var promptCodes = map[session.PromptStatus]Code{
	session.PromptQueued: PromptQueued, session.PromptProcessing: PromptProcessing, session.PromptCompleted: PromptCompleted,
	session.PromptFailed: PromptFailed, session.PromptCancelled: PromptCancelled, session.PromptUnknown: PromptUnknown,
}

// endCodes are the codes of the reasons of ended prompts and runs.
var endCodes = map[string]struct {
	code Code
	text string
}{
	session.ReasonAborted:           {Aborted, "the turn was interrupted by an abort"},
	session.ReasonSteered:           {Steered, "a prompt of the mode steer interrupted the turn"},
	session.ReasonCollected:         {JoinedTo, "it ended with the prompt that it was joined to"},
	session.ReasonJoined:            {JoinedTo, "the agent took it in the turn of another prompt, and it ended with that"},
	session.ReasonShutdown:          {Shutdown, "the workers of the installation were stopped"},
	session.ReasonWithdrawn:         {Withdrawn, "the prompt was withdrawn before it ran"},
	session.ReasonCleared:           {Cleared, "the queue was cleared"},
	session.ReasonReverted:          {Reverted, "the agent was reverted to its state before the prompt"},
	session.ReasonResolved:          {Resolved, "a person recorded how the prompt ended"},
	session.ReasonDismissed:         {Dismissed, "a person dismissed the prompt"},
	session.ReasonSessionTerminated: {SessionTerminated, "the session was terminated"},
	session.ReasonSandboxLost:       {SandboxLost, "the sandbox was lost, and with it the outcome or the prompt"},
	session.ReasonAgentCrashed:      {AgentCrashed, "the process of the agent ended without a result"},
	session.ReasonQuarantined:       {Quarantined, "the agent's output has crashed workers repeatedly, so no worker reads it any more"},
}

// prompt explains the status of a prompt.
func (c *chain) prompt() {
	p := c.Prompt
	if p == nil {
		c.row(NothingToExplain, time.Time{}, about("session", c.Session.ID), "the session has no prompt")
		c.created()
		return
	}
	c.out.ID = p.ID
	switch p.Status {
	case session.PromptQueued:
		c.queued(*p)
	case session.PromptProcessing:
		c.processing(*p)
	default:
		c.ended(*p)
	}
	request := ""
	if p.RequestID != "" {
		request = " with request " + p.RequestID
	}
	c.row(PromptAccepted, p.CreatedAt, about("prompt", p.ID), "the prompt was accepted at %s%s", clock(p.CreatedAt), request)
}

func (c *chain) queued(p session.Prompt) {
	s := c.Session
	c.row(PromptQueued, p.CreatedAt, about("prompt", p.ID), "the prompt has been waiting since %s", clock(p.CreatedAt))
	if s.Status == session.Error {
		c.row(SessionInError, time.Time{}, about("session", s.ID), "the session is in error: %s", quoted(s.StatusReason))
	}
	if s.Queue.Hold.Held() {
		c.held()
	}
	if p.JoinedTo != "" {
		c.row(JoinedTo, time.Time{}, about("prompt", p.JoinedTo), "the agent gets it with the prompt %s", p.JoinedTo)
	}
	if p.CollectUntil.After(c.Now) {
		c.row(Collecting, p.CollectUntil, about("prompt", p.ID), "other prompts of the mode collect may join it until %s", clock(p.CollectUntil))
	}
	if c.Processing != "" {
		c.row(TurnRunning, time.Time{}, about("prompt", c.Processing), "the prompt %s is running", c.Processing)
	}
	if c.Ahead > 0 {
		c.row(BehindPrompts, time.Time{}, nil, "%d prompts come before it", c.Ahead)
	}
	c.earlier(p)
	c.outages(p.CreatedAt, c.Now)
	c.waits()
	if s.Status != session.Running && len(c.Transitions) > 0 {
		c.steps(len(c.Transitions) - 1)
	} else if s.Status == session.Initializing {
		c.row(SessionStarting, s.CreatedAt, about("session", s.ID), "the first sandbox of the session is not ready yet%s", c.step())
	}
}

// earlier adds runs of the prompt after which it was queued again.
func (c *chain) earlier(p session.Prompt) {
	for _, r := range c.Runs {
		if r.PromptID == p.ID && r.Outcome != "" {
			c.run(r)
		}
	}
}

func (c *chain) processing(p session.Prompt) {
	c.row(PromptProcessing, p.StartedAt, about("prompt", p.ID), "the agent has been working on the prompt since %s", clock(p.StartedAt))
	if p.JoinedTo != "" {
		c.row(JoinedTo, time.Time{}, about("prompt", p.JoinedTo), "the agent has got it with the prompt %s", p.JoinedTo)
	}
	for _, q := range c.Questions {
		if q.Status == "open" && q.RunID == p.RunID {
			c.row(QuestionOpen, q.CreatedAt, about("question", q.ID), "the agent waits for the answer to a question until %s", clock(q.ExpiresAt))
		}
	}
	for _, r := range c.Runs {
		if r.PromptID != p.ID {
			continue
		}
		if r.Outcome == "" && !r.ParkedAt.IsZero() {
			c.row(TurnParked, r.ParkedAt, about("run", r.ID), "the turn is parked until the question is answered, and the session may sleep in the meantime")
		}
		c.run(r)
	}
	c.retrying(p.RunID)
	s := c.Session
	if b := s.Sandbox; b != nil && b.Status == session.SandboxUnhealthy {
		c.row(SandboxUnhealthy, b.LastHealthCheck, c.sandboxRef(s.Generation), "the runner in the sandbox of generation %d does not answer", s.Generation)
	}
	c.pending()
}

// retrying adds that the agent of a run retries a request to its model.
func (c *chain) retrying(runID string) {
	if r := c.Retry; r != nil && session.RunOf(r.RunID) == session.RunOf(runID) {
		c.row(ModelUnavailable, r.At, about("run", runID), "the model does not answer the agent, which repeats its request: %s", quoted(r.Message))
	}
}

func (c *chain) ended(p session.Prompt) {
	at := p.EndedAt
	c.row(promptCodes[p.Status], at, about("prompt", p.ID), "the prompt ended as %s at %s%s", p.Status, clock(at), because(p.Reason))
	c.because(p.Reason, at, about("prompt", p.ID))
	if p.Status == session.PromptCancelled && (p.Reason == session.ReasonAborted || p.Reason == session.ReasonSteered) {
		for _, k := range c.Commands {
			if k.Kind == session.CommandAbort && k.RunID == p.RunID {
				c.row(CommandRequested, k.CreatedAt, about("command", k.ID), "a client requested abort at %s", clock(k.CreatedAt))
				break
			}
		}
	}
	for _, r := range c.Runs {
		if r.PromptID == p.ID {
			c.run(r)
		}
	}
	if !p.StartedAt.IsZero() && p.StartedAt.Sub(p.CreatedAt) >= SlowAfter {
		c.waited(p)
	}
}

// waited adds what happened while the prompt waited for its turn.
func (c *chain) waited(p session.Prompt) {
	c.row(PromptQueued, p.CreatedAt, about("prompt", p.ID), "the prompt waited %s for its turn", p.StartedAt.Sub(p.CreatedAt).Round(time.Second))
	c.outages(p.CreatedAt, p.StartedAt)
	c.problems(p.CreatedAt, p.StartedAt)
	c.failures(p.CreatedAt, p.StartedAt)
}

// because adds the explanation of an end's reason.
func (c *chain) because(reason string, at time.Time, ref *Reference) {
	if known, ok := endCodes[reason]; ok {
		c.row(known.code, at, ref, "%s", known.text)
	} else if strings.Contains(reason, "sandbox exceeded") || strings.HasPrefix(reason, "disk") || strings.HasPrefix(reason, "memory") {
		c.row(SandboxLimit, at, ref, "the sandbox exceeded a limit: %s", quoted(reason))
	}
}

// run adds a run of the prompt: its attempts, its end, and Temporal's information about both.
func (c *chain) run(r Run) {
	ref := about("run", r.ID)
	to := r.EndedAt
	if to.IsZero() {
		to = c.Now
	}
	if r.Outcome != "" && r.Outcome != session.OutcomeCompleted && (c.Prompt == nil || r.Reason != c.Prompt.Reason) {
		c.because(r.Reason, r.EndedAt, ref)
	}
	if r.Attempt > 1 {
		c.row(AttemptRepeated, r.StartedAt, ref, "workers made %d attempts at the run %s, each resuming where the last one stopped", r.Attempt, r.ID)
	}
	c.outages(r.StartedAt, to)
	c.problems(r.StartedAt.Add(-time.Second), to.Add(time.Second))
	c.failures(r.StartedAt.Add(-time.Second), to.Add(time.Second))
	if r.Reason == session.ReasonSandboxLost || r.Outcome == session.OutcomeUnknown {
		for _, t := range c.Transitions {
			if t.Event == session.EventHibernate && t.Reason == session.ReasonLost && t.Generation == r.Generation {
				c.lost(r.Generation, t.At)
			}
		}
	}
}
