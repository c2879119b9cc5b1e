package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func (b *harness) park(t *testing.T, runID string) bool {
	t.Helper()
	parked, err := b.RunPark(b.ctx, run.Parking{RunID: runID, Token: "token"})
	require.NoError(t, err)
	return parked
}

// asleepAsking returns a sleeping session with an open question, and its run.
func asleepAsking(t *testing.T, expires time.Duration, asked ...question.Asked) (b *harness, run string) {
	t.Helper()
	b, run, _ = asking(t, expires, asked...)
	require.True(t, b.park(t, run))
	require.True(t, b.park(t, run), "as after a lost answer")
	b.transit(t, session.EventHibernate, session.ReasonQuestion)
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "hibernated"))
	b.transit(t, session.EventSaved, session.ReasonQuestion)
	return b, run
}

// awake restores the session.
func (b *harness) awake(t *testing.T, reason string) {
	t.Helper()
	b.transit(t, session.EventWake, reason)
	b.reserve(t, b.generation(t)+1)
	b.transit(t, session.EventReady, reason)
}

func (b *harness) opened(t *testing.T) session.Loaded {
	t.Helper()
	loaded, err := b.SessionOpen(b.ctx, b.id, "")
	require.NoError(t, err)
	return loaded
}

// TestQuestionSurvivesItsSandbox checks that the session sleeps with its run open, that one answer
// is accepted and signalled to the workflow, and that the run continues in the next sandbox as its
// next part, with consecutive frame numbers.
func TestQuestionSurvivesItsSandbox(t *testing.T) {
	t.Parallel()
	b, runID := asleepAsking(t, time.Hour, permission)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.WaitingForAnswer, s.Activity().State)
	require.EqualValues(t, 1, s.Queue.Processing)
	p := b.opened(t).Processing
	require.True(t, p.Parked)
	require.False(t, p.Due)
	require.WithinDuration(t, time.Now().Add(time.Hour), p.Until, time.Minute)
	_, err = b.RunAttach(b.ctx, runID, "late", run.Dispatch{No: 9, Attempt: 1}, nil)
	requireCode(t, failure.IllegalState, err)

	q, err := b.QuestionAnswer(b.ctx, b.id, b.questions(t)[0].ID, question.Answer{Decision: question.Once})
	require.NoError(t, err)
	require.True(t, q.Notify)
	_, err = b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Reject})
	requireCode(t, failure.Answered, err)
	require.True(t, b.opened(t).Processing.Due)

	_, err = b.RunContinue(b.ctx, runID, 1)
	requireCode(t, failure.IllegalState, err)
	b.awake(t, session.ReasonAnswer)
	c, err := b.RunContinue(b.ctx, runID, 2)
	require.NoError(t, err)
	require.True(t, c.Granted)
	require.EqualValues(t, 1, c.Part)
	again, err := b.RunContinue(b.ctx, runID, 2)
	require.NoError(t, err)
	require.Equal(t, c, again)

	start, err := b.RunAttach(b.ctx, runID, "next", run.Dispatch{No: c.Dispatch, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, "sb-2", start.SandboxID)
	require.EqualValues(t, 1, start.Run.Part)
	require.EqualValues(t, 5, start.Run.FrameBase, "frame 4 closes the open blocks of the previous part")
	taken, err := b.SessionReclaim(b.ctx, b.id, "")
	require.NoError(t, err)
	require.EqualValues(t, 1, taken.Run.Part, "otherwise an abort would be for the previous part")
	parked, err := b.QuestionsParked(b.ctx, runID, 1)
	require.NoError(t, err)
	require.Len(t, parked, 1)
	require.False(t, parked[0].Delivered)
	pending, err := b.QuestionsPending(b.ctx, runID, true)
	require.NoError(t, err)
	require.Empty(t, pending, "no agent waits for it now")
	require.NoError(t, b.QuestionsDelivered(b.ctx, "next", []string{q.ID}))
	require.True(t, b.questions(t)[0].Delivered)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "next", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	ended, err := b.RunContinue(b.ctx, runID, 2)
	require.NoError(t, err)
	require.Equal(t, run.Continuation{Ended: true}, ended)
}

// TestUnansweredQuestionExpiresDuringHibernation checks that the question expires when its run
// continues, and not before its deadline.
func TestUnansweredQuestionExpiresDuringHibernation(t *testing.T) {
	t.Parallel()
	b, run := asleepAsking(t, time.Hour, permission, inquiry)
	_, err := b.QuestionAnswer(b.ctx, b.id, b.questions(t)[1].ID, question.Answer{Decision: question.Once})
	require.NoError(t, err)
	require.False(t, b.opened(t).Processing.Due, "there are two")
	b.awake(t, session.ReasonRequested)
	c, err := b.RunContinue(b.ctx, run, 2)
	require.NoError(t, err)
	require.False(t, c.Granted)
	require.WithinDuration(t, time.Now().Add(time.Hour), c.Until, time.Minute)
	b.sql(t, `UPDATE questions SET expires_at = now() - interval '1 second' WHERE session_id = $1`, b.id)
	before := b.position(t)
	c, err = b.RunContinue(b.ctx, run, 2)
	require.NoError(t, err)
	require.True(t, c.Granted)
	require.Equal(t, []string{"question_resolved"}, b.types(t, before))
	require.Equal(t, question.Expired, b.questions(t)[0].Status)
}

// TestIdleRunWithOpenQuestionIsParked checks that a run is not parked while an answer is being
// delivered, a command interrupts it, or a call without a question is running, nor by a replaced
// attempt. A run that is not parked keeps its session awake.
func TestIdleRunWithOpenQuestionIsParked(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, b *harness, run string){
		"an answer": func(t *testing.T, b *harness, _ string) {
			_, err := b.QuestionAnswer(b.ctx, b.id, b.questions(t)[0].ID, question.Answer{Decision: question.Once})
			require.NoError(t, err)
		},
		"an abort": func(t *testing.T, b *harness, _ string) {
			_, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandAbort})
			require.NoError(t, err)
		},
		"its time": func(t *testing.T, b *harness, _ string) {
			b.sql(t, `UPDATE questions SET expires_at = now() - interval '1 second' WHERE session_id = $1`, b.id)
		},
		"the end": func(t *testing.T, b *harness, runID string) {
			_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, run, _ := asking(t, time.Hour, permission)
			before(t, b, run)
			require.False(t, b.park(t, run))
		})
	}
	b, runID, add := asking(t, time.Hour, permission)
	_, err := b.RunPark(b.ctx, run.Parking{RunID: runID, Token: "another"})
	requireCode(t, failure.IllegalState, err)
	requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, b.next(t, session.EventHibernate, session.ReasonQuestion)))
	add.LastFrame++
	add.Events, add.Questions = nil, nil
	add.Events = append(add.Events, draft("block_start", add.LastFrame, 0, `{"block":{"id":"b1","type":"tool_use","status":"running","createdAt":"2026-01-01T00:00:00Z","name":"Read","toolUseId":"t1"}}`))
	require.NoError(t, b.appendOne(t, add))
	require.False(t, b.park(t, runID), "another call is running")
	parked, err := b.RunPark(b.ctx, run.Parking{RunID: runID, Token: "token", AtWork: true})
	require.NoError(t, err)
	require.True(t, parked, "it has been silent for long")
}

// TestRunIsParkedWhileSubagentAsks checks that a subagent that waits for the question does not
// keep the session awake, while another subagent does.
func TestRunIsParkedWhileSubagentAsks(t *testing.T) {
	t.Parallel()
	asked := permission
	asked.ToolUseID = "inner"
	b, run, add := asking(t, time.Hour, asked)
	at := func(conversationID, kind, id, subagentID, status string) {
		add.LastFrame++
		d := draft("block_start", add.LastFrame, 0, `{"block":{"id":"`+id+`","type":"`+kind+`","status":"`+status+
			`","createdAt":"2026-01-01T00:00:00Z","name":"x","toolUseId":"`+id+`","subagentId":"`+subagentID+`"}}`)
		d.ConversationID = conversationID
		add.Events, add.Questions = []eventlog.Draft{d}, nil
		require.NoError(t, b.appendOne(t, add))
	}
	at("main", "subagent", "outer", "child", "running")
	require.False(t, b.park(t, run), "a subagent works")
	at("child", "subagent", "nested", "grandchild", "running")
	at("grandchild", "tool_use", "inner", "", "pending")
	at("main", "subagent", "other", "sibling", "running")
	require.False(t, b.park(t, run), "another subagent works")
	at("main", "subagent", "other", "sibling", "success")
	require.True(t, b.park(t, run), "all that works waits for the question")
}

// TestCommandsOfParkedSessionAreSignalled: no turn is running after which the workflow would read
// them.
func TestCommandsOfParkedSessionAreSignalled(t *testing.T) {
	t.Parallel()
	b, _ := asleepAsking(t, time.Hour, permission)
	b.opened(t)
	done, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandWake})
	require.NoError(t, err)
	require.True(t, done.Notify)
	p := b.submit(t, "waits")
	b.sql(t, `UPDATE prompts SET created_at = now() - interval '1 minute' WHERE id = $1`, p)
	unclaimed, err := b.Unclaimed(b.ctx, "", time.Second, 100)
	require.NoError(t, err)
	require.Empty(t, unclaimed, "it waits for the answer")
}

// TestUsageOfParkedRunIncludesAllParts checks that each part adds its newest report and the calls
// that ended in it.
func TestUsageOfParkedRunIncludesAllParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reports [2][]string // for each of the parked parts
		cost    *float64
		input   int64
	}{
		"all report":    {[2][]string{{usageColumns(1, `0.5`), usageColumns(10, `1`)}, {usageColumns(100, `0.25`)}}, new(1 + 0.25 + 2.0), 1110},
		"one does not":  {[2][]string{{usageColumns(10, `1`)}, nil}, nil, 1010},
		"one has none":  {[2][]string{{usageColumns(10, `1`)}, {usageColumns(100, `null`)}}, nil, 1110},
		"the first has": {[2][]string{nil, {usageColumns(100, `1`)}}, nil, 1100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, runID, add := asking(t, time.Hour, permission)
			add.Questions, add.LastFrame = nil, 4
			b.reportUsage(t, add, c.reports[0], "t1", "t2")
			require.True(t, b.park(t, runID))
			b.sleepAsking(t, 1)
			q := b.questions(t)[0]
			_, err := b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Once})
			require.NoError(t, err)
			b.awake(t, session.ReasonAnswer)
			next, err := b.RunContinue(b.ctx, runID, 2)
			require.NoError(t, err)
			start, err := b.RunAttach(b.ctx, runID, "token", run.Dispatch{No: next.Dispatch, Attempt: 1}, nil)
			require.NoError(t, err)

			second := permission
			second.ID = "p2"
			add.Generation, add.LastFrame = 2, start.Run.FrameBase+1
			add.Questions = []eventlog.Question{{Frame: add.LastFrame, Asked: second, At: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}}
			b.reportUsage(t, add, c.reports[1], "t3")
			require.True(t, b.park(t, runID))
			b.sleepAsking(t, 2)
			_, err = b.QuestionAnswer(b.ctx, b.id, b.questions(t)[0].ID, question.Answer{Decision: question.Once})
			require.NoError(t, err)
			b.awake(t, session.ReasonAnswer)
			next, err = b.RunContinue(b.ctx, runID, 3)
			require.NoError(t, err)
			_, err = b.RunAttach(b.ctx, runID, "last", run.Dispatch{No: next.Dispatch, Attempt: 1}, nil)
			require.NoError(t, err)
			ended, err := b.RunEnd(b.ctx, run.Ending{
				RunID: runID, Token: "last", Outcome: session.OutcomeCompleted, Usage: usage.Usage{InputTokens: 1000, OutputTokens: 1, CostUSD: 2, ToolCalls: 5},
			})
			require.NoError(t, err)
			require.Equal(t, c.input, ended.Usage.InputTokens)
			require.Equal(t, c.cost, ended.Usage.Cost())
			require.EqualValues(t, 8, ended.Usage.ToolCalls)
			s, err := b.SessionGet(b.ctx, b.id)
			require.NoError(t, err)
			require.Equal(t, c.input, s.Metrics.InputTokens)
			require.EqualValues(t, 8, s.Metrics.ToolCalls)
			p, err := b.PromptGet(b.ctx, b.id, ended.PromptID)
			require.NoError(t, err)
			require.Equal(t, ended.Usage, p.Usage.Usage)
		})
	}
}

func usageColumns(input int, cost string) string {
	return fmt.Sprintf(`{"usage":{"inputTokens":%d,"outputTokens":0},"costUsd":%s}`, input, cost)
}

// reportUsage appends reports of usage, one ended call for each id, and one that has not ended.
func (b *harness) reportUsage(t *testing.T, add eventlog.Append, reports []string, calls ...string) {
	t.Helper()
	add.Events = nil
	for _, r := range reports {
		add.Events = append(add.Events, draft("metadata_update", add.LastFrame, len(add.Events), r))
	}
	block := func(kind, id, status string) {
		data := fmt.Sprintf(`{"block":{"id":%q,"type":"tool_use","name":"Read","status":%q,"createdAt":"2026-01-01T00:00:00Z"}}`, id, status)
		add.Events = append(add.Events, draft(kind, add.LastFrame, len(add.Events), data))
	}
	for _, id := range calls {
		block("block_start", id, "pending")
		block("block_complete", id, "success")
	}
	require.NoError(t, b.appendOne(t, add))
}

// sleepAsking hibernates the session.
func (b *harness) sleepAsking(t *testing.T, generation int64) {
	t.Helper()
	b.transit(t, session.EventHibernate, session.ReasonQuestion)
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, generation, "hibernated"))
	b.transit(t, session.EventSaved, session.ReasonQuestion)
}
