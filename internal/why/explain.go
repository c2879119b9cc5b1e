package why

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// chain builds an explanation.
type chain struct {
	Facts
	history History
	out     Explanation
}

// Explain explains a subject of a session from the facts that the store has read for this subject.
func Explain(of Subject, id string, f Facts, h History) Explanation {
	c := &chain{Facts: f, history: h, out: Explanation{
		SessionID: f.Session.ID, Of: of, ID: id, At: resource.Time(f.Now), Causes: []Cause{}, Disagreements: []Disagreement{},
		Temporal:  Engine{Available: h.Err == "", Reason: quoted(h.Err), WorkflowOpen: h.Open, Events: h.Read, Truncated: h.Truncated},
		Truncated: len(f.Transitions) == MaxTransitions,
	}}
	switch of {
	case Transition:
		c.transition()
	case Prompt:
		c.prompt()
	case Receipt:
		c.receipt()
	case Question:
		c.question()
	default:
		c.session()
	}
	c.compare()
	if len(c.out.Causes) > MaxCauses {
		c.out.Causes, c.out.Truncated = c.out.Causes[:MaxCauses], true
	}
	c.summarize()
	return c.out
}

// states are the codes that describe a state, not a reason.
var states = []Code{
	SessionCreated, SessionLazy, SessionStarting, SessionRunning, SessionHibernating, SessionHibernated, SessionRestoring,
	SessionTerminated, PromptAccepted, PromptQueued, PromptProcessing, PromptCompleted, PromptFailed, PromptCancelled,
	PromptUnknown, RestoredFull, RestoredPartial, RestoredFresh, RestoredUnverified, QuestionAnswered, QuestionCancelled,
}

// summarize sets the code and the summary from the first cause with a reason and from the subject.
func (c *chain) summarize() {
	first := c.out.Causes[0]
	c.out.Code, c.out.Summary = first.Code, first.Text
	isState := func(code Code) bool {
		return slices.Contains(states, code) || code == SessionInError && c.out.Of != Prompt // for which it is a reason
	}
	for _, cause := range c.out.Causes[1:] {
		if isState(first.Code) && !isState(cause.Code) {
			c.out.Code, c.out.Summary = cause.Code, first.Text+": "+cause.Text
			return
		}
	}
}

// add adds a cause. A cause equal to the last one increments its count.
func (c *chain) add(code Code, at time.Time, about *Reference, source Source, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if n := len(c.out.Causes); n > 0 {
		last := &c.out.Causes[n-1]
		if last.Code == code && last.Text == text && last.Source == source {
			last.Times = max(last.Times, 1) + 1
			return
		}
	}
	c.out.Causes = append(c.out.Causes, Cause{Code: code, At: resource.OptionalTime(at), Text: text, Source: source, About: about})
}

func (c *chain) row(code Code, at time.Time, about *Reference, format string, args ...any) {
	c.add(code, at, about, Rows, format, args...)
}

func about(kind, id string) *Reference { return &Reference{Type: kind, ID: id} }

func (c *chain) sandboxRef(generation int64) *Reference {
	return about("sandbox", strconv.FormatInt(generation, 10))
}

// because returns a reason in parentheses, or nothing.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + quoted(reason) + ")"
}

// problems adds the error events between two times that explain a delay or a loss.
func (c *chain) problems(from, to time.Time) {
	codes := map[string]Code{
		problem.ProvisioningDelayed: ProvisioningDelayed, problem.RestoringDelayed: RestoringDelayed,
		problem.SavingDelayed: SavingDelayed, problem.SyncDelayed: CheckpointFailed, problem.SyncFailed: CheckpointFailed,
		problem.RevertDelayed: RevertFailed, problem.RevertFailed: RevertFailed, problem.SandboxLimit: SandboxLimit,
		session.ReasonAgentCrashed: AgentCrashed,
	}
	for _, p := range c.Problems {
		code, known := codes[p.Code]
		if !known || p.At.Before(from) || p.At.After(to) {
			continue
		}
		c.row(code, p.At, nil, "%s", quoted(p.Message))
	}
}

// outages adds the outages that overlap with the time between two times.
func (c *chain) outages(from, to time.Time) {
	for _, o := range c.Outages {
		if o.Until.Before(from) || o.Since.After(to) {
			continue
		}
		part := "Postgres"
		if o.Code == TemporalUnavailable {
			part = "Temporal"
		}
		c.row(o.Code, o.Since, nil, "%s did not answer workers from %s to %s (%s)", part, clock(o.Since), clock(o.Until), o.Until.Sub(o.Since).Round(time.Second))
	}
}

// failures adds Temporal's failed attempts between two times, the newest first.
func (c *chain) failures(from, to time.Time) {
	for _, e := range slices.Backward(c.history.Events) {
		if e.At.Before(from) || e.At.After(to) {
			continue
		}
		if e.Sandbox != "" && c.saved(e.Generation, e.At) { // the session was about to release it, and lost nothing
			continue
		}
		if code, text := classify(e); code != "" {
			c.add(code, e.At, nil, Temporal, "%s", text)
		}
	}
	c.slow(from, to)
}

// saved reports whether the session had saved a sandbox before a time and no longer needed it.
func (c *chain) saved(generation int64, at time.Time) bool {
	return slices.ContainsFunc(c.Bundles, func(b Bundle) bool {
		return b.Generation == generation && b.HasSnapshot && !b.Checkpoint && !b.CreatedAt.After(at)
	})
}
