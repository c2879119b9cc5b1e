package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// explain reads the facts of a subject and explains it without Temporal's history.
func (b *harness) explain(t *testing.T, of why.Subject, id string) why.Explanation {
	t.Helper()
	facts, err := b.WhyFacts(b.ctx, b.id, of, id)
	require.NoError(t, err)
	return why.Explain(of, id, facts, why.History{})
}

// refersTo reports whether a cause with a code refers to a row.
func refersTo(e why.Explanation, code why.Code, id string) bool {
	for _, c := range e.Causes {
		if c.Code == code && c.About != nil && c.About.ID == id {
			return true
		}
	}
	return false
}

func TestSessionIsExplainedFromItsRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, why.SessionLazy, b.explain(t, why.Session, "").Causes[0].Code)
	require.Equal(t, why.NothingToExplain, b.explain(t, why.Prompt, "").Code)
	require.Equal(t, why.NothingToExplain, b.explain(t, why.Question, "").Code)
	require.Equal(t, why.NothingToExplain, b.explain(t, why.Transition, "").Code)
	require.Equal(t, why.NeverRestored, b.explain(t, why.Receipt, "").Code)

	first := b.submit(t, "a secret plan")
	b.reserve(t, 1)
	b.transit(t, session.EventReady, session.ReasonPrompt)
	e := b.explain(t, why.Transition, "")
	require.True(t, refersTo(e, why.PromptAccepted, first), "%+v", e)

	b.holdQueue(t, "I look at it")
	e = b.explain(t, why.Prompt, "")
	require.Equal(t, first, e.ID)
	require.Equal(t, why.QueueHeld, e.Code)
	require.Contains(t, e.Summary, "I look at it")
	require.NotContains(t, e.Summary, "secret plan")
	b.release(t)

	runID := b.begin(t, first)
	second := b.submit(t, "second")
	require.Equal(t, why.TurnRunning, b.explain(t, why.Prompt, second).Code)
	require.Equal(t, why.PromptProcessing, b.explain(t, why.Prompt, "").Causes[0].Code, "the one that is processed")
	require.NoError(t, b.ProblemReport(b.ctx, b.id, session.ReasonAgentCrashed, "the agent ended with exit code 3"))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed})
	require.NoError(t, err)
	e = b.explain(t, why.Prompt, first)
	require.Equal(t, why.AgentCrashed, e.Code)

	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate, RequestID: "req-1"})
	require.NoError(t, err)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, why.CommandPending, b.explain(t, why.Session, "").Code)
	step := b.next(t, session.EventHibernate, session.ReasonRequested)
	step.Command = s.Pending[0].ID
	require.NoError(t, b.TransitionRecord(b.ctx, step))
	b.transit(t, session.EventSaved, session.ReasonRequested)
	e = b.explain(t, why.Session, "")
	require.Equal(t, why.CommandRequested, e.Code)
	require.True(t, refersTo(e, why.CommandRequested, s.Pending[0].ID), "%+v", e)
	require.Contains(t, e.Summary, "req-1")

	b.transit(t, session.EventWake, session.ReasonPrompt)
	require.True(t, refersTo(b.explain(t, why.Session, ""), why.PromptAccepted, second))
	b.reserve(t, 2)
	ready := b.next(t, session.EventReady, session.ReasonPrompt)
	ready.Receipt, ready.Generation = &receipt.Receipt{Kind: receipt.Fresh, Missing: []string{"workspace"}}, 2
	require.NoError(t, b.TransitionRecord(b.ctx, ready))
	e = b.explain(t, why.Receipt, "")
	require.Equal(t, "5", e.ID)
	require.Equal(t, why.NothingToRestore, e.Code)
	require.Equal(t, why.SessionHibernating, b.explain(t, why.Transition, "2").Causes[0].Code, "an older one")
}

// TestUnresponsiveModelIsNamed checks that the explanation names the model while the agent retries
// its request.
func TestUnresponsiveModelIsNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "work"))
	block := func(position int, fields string) {
		b.sql(t, `INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block)
			VALUES ($1, 'main', 'b' || $2::int, $2::int, $2::int, 0, false, false, $3::json)`, b.id, position, `{"createdAt":"2026-01-02T03:04:05.678Z","runId":"`+run+`",`+fields+`}`)
	}
	require.Equal(t, why.PromptProcessing, b.explain(t, why.Prompt, "").Code)
	block(1_000_001, `"type":"system","subtype":"retry","message":"attempt 2 of 10"`)
	for _, of := range []why.Subject{why.Prompt, why.Session} {
		e := b.explain(t, of, "")
		require.Equal(t, why.ModelUnavailable, e.Code)
		require.Contains(t, e.Summary, "attempt 2 of 10")
	}
	block(1_000_002, `"type":"assistant_text","content":"it answers"`)
	require.Equal(t, why.PromptProcessing, b.explain(t, why.Prompt, "").Code)
}

func TestUnknownObjectsAreNotExplained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	code := func(sessionID string, of why.Subject, id string) failure.Code {
		_, err := b.WhyFacts(b.ctx, sessionID, of, id)
		return failure.CodeOf(err)
	}
	require.Equal(t, failure.NoSession, code(session.NewID(session.SessionPrefix), why.Session, ""))
	require.Equal(t, failure.NoPrompt, code(b.id, why.Prompt, "p"))
	require.Equal(t, failure.NoQuestion, code(b.id, why.Question, session.NewID(session.QuestionPrefix)))
	for _, no := range []string{"0", "1", "-1", "x", "99999999999999999999"} {
		require.Equal(t, failure.Invalid, code(b.id, why.Transition, no), no)
		require.Equal(t, failure.Invalid, code(b.id, why.Receipt, no), no)
	}
}

// TestExplanationReadsBoundedNumberOfRows explains a session with many transitions.
func TestExplanationReadsBoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, `INSERT INTO session_transitions (session_id, no, from_status, to_status, event, reason, generation, at)
		SELECT $1, n, 'running', 'hibernating', 'hibernate', 'idle', 1, now() FROM generate_series(1, 2000) n`, b.id)
	b.sql(t, `UPDATE sessions SET transition_no = 2000 WHERE id = $1`, b.id)
	facts, err := b.WhyFacts(b.ctx, b.id, why.Transition, "1500")
	require.NoError(t, err)
	require.Len(t, facts.Transitions, why.MaxTransitions)
	require.EqualValues(t, 1500, facts.Transitions[why.MaxTransitions-1].No)
	require.WithinDuration(t, time.Now(), facts.Now, time.Hour)
}
