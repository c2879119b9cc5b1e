package why

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// stateCodes are the codes of the states of a session.
var stateCodes = map[session.State]Code{
	session.Initializing: SessionStarting, session.Running: SessionRunning, session.Hibernating: SessionHibernating, session.Hibernated: SessionHibernated,
	session.Restoring: SessionRestoring, session.Error: SessionInError, session.Terminated: SessionTerminated,
}

// inState returns a status for use in a sentence.
func inState(s session.State) string {
	if s == session.Error {
		return "in error"
	}
	return string(s)
}

// session explains the current state.
func (c *chain) session() {
	s := c.Session
	switch {
	case s.Purge != nil:
		c.row(SessionErasing, s.Purge.RequestedAt, about("session", s.ID), "the purge of the session was requested at %s and is %s", clock(s.Purge.RequestedAt), s.Purge.State)
	case len(c.Transitions) == 0 && s.Status == session.Initializing && s.Lazy && s.Generation == 0:
		c.row(SessionLazy, s.CreatedAt, about("session", s.ID), "the session is lazy and has no sandbox: it gets one with its first prompt or wake")
	case len(c.Transitions) == 0:
		c.row(stateCodes[s.Status], s.CreatedAt, about("session", s.ID), "the session has been %s since it was created at %s%s", inState(s.Status), clock(s.CreatedAt), c.step())
	default:
		since := c.Transitions[len(c.Transitions)-1].At
		c.row(stateCodes[s.Status], since, about("session", s.ID), "the session has been %s since %s%s", inState(s.Status), clock(since), c.step())
	}
	for _, r := range c.Runs {
		if r.Outcome == "" {
			c.retrying(r.ID)
		}
	}
	c.present()
	if len(c.Transitions) > 0 {
		c.steps(len(c.Transitions) - 1)
		return
	}
	c.created()
}

func (c *chain) step() string {
	if c.Session.Step == "" {
		return ""
	}
	return " (" + c.Session.Step + ")"
}

// present adds the causes for which the session waits now.
func (c *chain) present() {
	if c.Session.Queue.Hold.Held() {
		c.held()
	}
	c.waits()
}

// waits adds the causes that delay the session's next step.
func (c *chain) waits() {
	s := c.Session
	since := s.CreatedAt
	if n := len(c.Transitions); n > 0 {
		since = c.Transitions[n-1].At
	}
	if b := s.Sandbox; b != nil && b.Status == session.SandboxUnhealthy {
		c.row(SandboxUnhealthy, b.LastHealthCheck, c.sandboxRef(s.Generation), "the runner in the sandbox of generation %d does not answer", s.Generation)
	}
	for _, p := range s.Pending {
		c.row(CommandPending, p.CreatedAt, about("command", p.ID), "the command %s was accepted at %s and waits%s", commandName(p.Kind), clock(p.CreatedAt), because(p.Reason))
	}
	for _, q := range c.Questions {
		if q.Status == "open" {
			c.row(QuestionOpen, q.CreatedAt, about("question", q.ID), "a question of the agent is open until %s", clock(q.ExpiresAt))
			break
		}
	}
	if w := s.StartWait; w != nil {
		c.row(BreakerOpen, w.Since, nil, "starts of sandboxes of agent %s have failed %d times in a row and have been tried one at a time since %s, the next one at %s: %s",
			s.Agent, w.Failures, clock(w.Since), clock(w.Until), quoted(w.Reason))
	}
	c.pending()
	c.problems(since, c.Now)
	if s.Status != session.Running || s.Queue.Processing > 0 {
		c.failures(since, c.Now)
	}
}

func (c *chain) held() {
	h := c.Session.Queue.Hold
	c.row(QueueHeld, h.Since, about("session", c.Session.ID), "the queue has been held since %s%s: no prompt starts until it is released", clock(h.Since), because(h.Reason))
}

// transition explains the newest transition of the facts.
func (c *chain) transition() {
	if len(c.Transitions) == 0 {
		c.row(NothingToExplain, time.Time{}, about("session", c.Session.ID), "the session has no transition yet")
		c.created()
		return
	}
	c.steps(len(c.Transitions) - 1)
}

// steps adds a transition and its predecessors, back to the one with a cause outside the session.
func (c *chain) steps(i int) {
	for ; i >= 0; i-- {
		t := c.Transitions[i]
		no := strconv.FormatInt(t.No, 10)
		before := c.entered(i)
		c.row(stateCodes[t.To], t.At, about("transition", no), "transition %s: %s → %s at %s, after %s%s%s", no, t.From, t.To, clock(t.At),
			max(0, t.At.Sub(before)).Round(time.Millisecond), c.receiptText(t), because(t.Reason))
		if t.From != session.Running || t.Event == session.EventFail || t.Reason == session.ReasonLost { // else they are of its turns
			c.outages(before, t.At)
			c.problems(before, t.At)
			c.failures(before, t.At)
		}
		if c.reason(t) {
			return
		}
	}
	if len(c.Transitions) < MaxTransitions && len(c.Transitions) > 0 && c.Transitions[0].No == 1 {
		c.created()
	}
}

// entered returns the time at which the session entered the state that transition i left.
func (c *chain) entered(i int) time.Time {
	if i > 0 {
		return c.Transitions[i-1].At
	}
	if t := c.Transitions[i]; t.No > 1 {
		return t.At.Add(-time.Hour)
	}
	return c.Session.CreatedAt
}

func (*chain) receiptText(t Step) string {
	if t.Receipt == nil {
		return ""
	}
	return ", receipt " + string(t.Receipt.Kind)
}

// reason adds the reason of a transition, and reports whether the chain ends there.
func (c *chain) reason(t Step) (root bool) {
	switch t.Event {
	case session.EventReady, session.EventSaved: // the previous transition has the reason of its start
		if t.From == session.Initializing && t.Reason == session.ReasonPrompt && c.Woke != nil {
			c.row(PromptAccepted, c.Woke.CreatedAt, about("prompt", c.Woke.ID), "the prompt %s was accepted at %s and needed a sandbox", c.Woke.ID, clock(c.Woke.CreatedAt))
		}
		return false
	case session.EventHibernate:
		return c.hibernation(t)
	case session.EventWake:
		return c.waking(t)
	case session.EventFail:
		if t.Cause == session.CauseRefused || t.No == c.Session.TransitionNo {
			c.row(Refused, t.At, nil, "it cannot succeed without a correction: %s", quoted(t.Reason))
		}
		return false
	case session.EventRecover:
		if t.Reason == session.ReasonRetry {
			c.row(Retried, t.At, nil, "the error may have passed, so it was tried again")
			return false
		}
		return c.command(t, session.CommandRecover, session.CommandDrop)
	case session.EventStop:
		if t.Reason == session.ReasonCancelledInTemporal {
			c.row(CancelledInTemporal, t.At, nil, "the workflow of the session was cancelled in Temporal, which stops the session")
		}
		return c.command(t, session.CommandStop)
	case session.EventAbandoned:
		c.row(NothingToRestore, t.At, nil, "the sandbox had ended, and neither a snapshot nor transcripts were left to restore from")
		return false
	}
	return false
}

func (c *chain) hibernation(t Step) bool {
	switch t.Reason {
	case session.ReasonIdle:
		c.row(Idle, t.At, nil, "nothing happened in the session for its idle timeout, now %s", c.Session.IdleTimeout)
		return true
	case session.ReasonLost:
		c.lost(t.Generation, t.At)
		return true
	case session.ReasonLifetime:
		text := "the provider ends the sandbox soon"
		if b := c.sandbox(t.Generation); b != nil && !b.Deadline.IsZero() {
			text = "the provider ends the sandbox at " + clock(b.Deadline)
		}
		c.row(Lifetime, t.At, c.sandboxRef(t.Generation), "%s, so the session moves to another one", text)
		return true
	case session.ReasonQuestion:
		c.row(TurnParked, t.At, nil, "the turn waits only for an answer, so the session sleeps in the meantime")
		c.asked(t.At)
		return true
	case session.ReasonShutdown:
		c.row(Shutdown, t.At, nil, "the workers of the installation were stopped and put the session to sleep")
		c.command(t, session.CommandHibernate)
		return true
	case session.ReasonDropped:
		c.row(Dropped, t.At, c.sandboxRef(t.Generation), "the sandbox was discarded with its files, as requested")
		return c.command(t, session.CommandDrop)
	case session.ReasonRestart:
		c.row(Moved, t.At, c.sandboxRef(t.Generation), "the session moves to another sandbox")
		return c.command(t, session.CommandRestart)
	}
	return c.command(t, session.CommandHibernate)
}

func (c *chain) waking(t Step) bool {
	switch t.Reason {
	case session.ReasonPrompt:
		if c.Woke != nil {
			c.row(PromptAccepted, c.Woke.CreatedAt, about("prompt", c.Woke.ID), "the prompt %s was accepted at %s and woke the session", c.Woke.ID, clock(c.Woke.CreatedAt))
		} else {
			c.row(PromptAccepted, t.At, nil, "a prompt woke the session")
		}
		return true
	case session.ReasonAnswer:
		c.row(QuestionAnswered, t.At, nil, "the question that the session slept with was answered")
		return true
	case session.ReasonQuestionExpired:
		c.row(QuestionExpired, t.At, nil, "the question that the session slept with was not answered in time")
		return true
	case session.ReasonLifetime, session.ReasonRestart:
		c.row(Moved, t.At, nil, "the session moves to another sandbox")
		return false
	}
	return c.command(t, session.CommandWake)
}

// command adds the command of a transition.
func (c *chain) command(t Step, kinds ...session.CommandKind) bool {
	found := c.commandOf(t, kinds)
	if found == nil {
		return false
	}
	from := "a client"
	switch {
	case found.Reason == session.ReasonShutdown:
		from = "a worker that stops"
	case found.Reason == session.ReasonCancelledInTemporal:
		from = "an operator, in Temporal,"
	case found.RequestID == "" && found.Reason != "":
		from = "the session itself" + because(found.Reason)
	case found.RequestID != "":
		from = "a client, with request " + found.RequestID + ","
	}
	c.row(CommandRequested, found.CreatedAt, about("command", found.ID), "%s requested %s at %s", from, commandName(found.Kind), clock(found.CreatedAt))
	return true
}

// commandName returns the clients' name of a command.
func commandName(kind session.CommandKind) string {
	if kind == session.CommandRevertFiles {
		return "revert with files"
	}
	return string(kind)
}

func (c *chain) commandOf(t Step, kinds []session.CommandKind) *session.Command {
	for i, k := range c.Commands {
		if t.CommandID != "" && k.ID == t.CommandID {
			return &c.Commands[i]
		}
	}
	// Transitions of earlier versions do not name the command, which ends at the same time.
	var best *session.Command
	for i, k := range c.Commands {
		if t.CommandID != "" || !slices.Contains(kinds, k.Kind) || k.Status != session.CommandApplied || k.CreatedAt.After(t.At.Add(time.Second)) ||
			k.EndedAt.Before(t.At.Add(-time.Second)) {
			continue
		}
		if best == nil || cmp.Compare(k.EndedAt.UnixNano(), best.EndedAt.UnixNano()) < 0 {
			best = &c.Commands[i]
		}
	}
	return best
}

// lost adds the loss of a generation's sandbox with its cause.
func (c *chain) lost(generation int64, at time.Time) {
	text := ""
	if b := c.sandbox(generation); b != nil && !b.ReadyAt.IsZero() {
		text = ", which was ready at " + clock(b.ReadyAt)
	}
	c.row(SandboxLost, at, c.sandboxRef(generation), "the provider reported that the sandbox of generation %d%s, has ended", generation, text)
	n := 0
	for _, b := range c.Sandboxes {
		if b.Generation <= generation && !b.EndedAt.IsZero() && !b.ReadyAt.IsZero() && b.EndedAt.Sub(b.ReadyAt) < 2*time.Minute {
			n++
			continue
		}
		if b.Generation <= generation {
			break
		}
	}
	if n > 1 {
		c.row(SandboxesLost, at, c.sandboxRef(generation), "%d sandboxes in a row ended soon after they were ready", n)
	}
}

func (c *chain) sandbox(generation int64) *Sandbox {
	for i, b := range c.Sandboxes {
		if b.Generation == generation {
			return &c.Sandboxes[i]
		}
	}
	return nil
}

// asked adds the question that was open at a time.
func (c *chain) asked(at time.Time) {
	for _, q := range c.Questions {
		if !q.CreatedAt.After(at) && (q.ResolvedAt.IsZero() || q.ResolvedAt.After(at)) {
			c.row(QuestionOpen, q.CreatedAt, about("question", q.ID), "the agent asked at %s", clock(q.CreatedAt))
			return
		}
	}
}

// created ends a chain with the beginning of the session.
func (c *chain) created() {
	s := c.Session
	how := "with a sandbox at once"
	if s.Lazy {
		how = "without a sandbox before its first prompt or wake"
	}
	c.row(SessionCreated, s.CreatedAt, about("session", s.ID), "the session was created at %s, %s", clock(s.CreatedAt), how)
}
