package postgres_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asking returns a session with a run whose agent has asked a question.
func asking(t *testing.T, expires time.Duration, asked ...question.Asked) (b *harness, runID string, add eventlog.Append) {
	t.Helper()
	b = setup(t)
	b.running(t)
	runID = b.begin(t, b.submit(t, "1"))
	start, err := b.RunAttach(b.ctx, runID, "token", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	add = eventlog.Append{SessionID: b.id, RunID: runID, Generation: start.Run.Generation, Token: "token", State: []byte(`{}`), LastFrame: 3}
	add.Events = []eventlog.Draft{draft("title", 2, 0, `{"title":"before"}`), draft("title", 3, 0, `{"title":"after"}`)}
	for _, a := range asked {
		add.Questions = append(add.Questions, eventlog.Question{Frame: 2, Asked: a, At: time.Now(), ExpiresAt: time.Now().Add(expires)})
	}
	require.NoError(t, b.appendOne(t, add))
	return b, runID, add
}

var (
	permission = question.Asked{ID: "p1", Kind: question.Permission, ToolName: "Bash", Title: "May I?", Input: json.RawMessage(`{"command":"ls"}`)}
	inquiry    = question.Asked{ID: "i1", Kind: question.Inquiry, Title: "Which?", Inquiries: []question.Item{{Question: "Which?"}}}
)

func (b *harness) questions(t *testing.T) []question.Question {
	t.Helper()
	items, next, err := b.QuestionList(b.ctx, b.id, "", 0, "")
	require.NoError(t, err)
	require.Empty(t, next)
	return items
}

func TestQuestionIsAskedOnceAndAnsweredOnce(t *testing.T) {
	t.Parallel()
	b, run, add := asking(t, time.Hour, permission, inquiry)
	require.NoError(t, b.appendOne(t, add), "as after a lost answer")
	types := b.types(t, 0)
	require.Equal(t, []string{"title", "question", "question", "title"}, types[len(types)-4:], "after the events of their frame")
	list := b.questions(t)
	require.Len(t, list, 2)
	asks, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.EqualValues(t, 2, asks.QuestionsOpen)
	require.Equal(t, session.WaitingForAnswer, asks.Activity().State)
	require.Equal(t, inquiry, list[0].Asked, "newest first")
	q := list[1]
	require.Equal(t, permission, q.Asked)
	require.Equal(t, question.Open, q.Status)
	require.Equal(t, run, q.RunID)
	require.WithinDuration(t, q.CreatedAt.Add(time.Hour), q.ExpiresAt, time.Minute)

	position := b.position(t)
	var all sync.WaitGroup
	verdicts := make(chan error, 8) // one for each
	for range 8 {
		all.Go(func() {
			_, err := b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Once})
			verdicts <- err
		})
	}
	all.Wait()
	close(verdicts)
	won := 0
	for err := range verdicts {
		if err == nil {
			won++
			continue
		}
		requireCode(t, failure.Answered, err)
	}
	require.Equal(t, 1, won)
	require.Equal(t, []string{event.TypeQuestionResolved}, b.types(t, position), "reported once")
	got, err := b.QuestionGet(b.ctx, b.id, q.ID)
	require.NoError(t, err)
	require.Equal(t, question.Answered, got.Status)
	require.Equal(t, &question.Answer{Decision: question.Once}, got.Answer)

	pending, err := b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Len(t, pending, 2, "the agent has received neither")
	require.NoError(t, b.QuestionsDelivered(b.ctx, "token", []string{q.ID, list[0].ID}))
	pending, err = b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Len(t, pending, 1, "one that is open is not delivered")
	require.Equal(t, inquiry.ID, pending[0].Asked.ID)
}

func TestAnswerMustFitItsQuestion(t *testing.T) {
	t.Parallel()
	b, _, _ := asking(t, time.Hour, permission, inquiry)
	list := b.questions(t)
	for _, c := range []struct {
		id     string
		answer question.Answer
	}{
		{list[1].ID, question.Answer{Decision: question.Once, Answers: question.TextEach(map[string]string{"x": "y"})}},
		{list[0].ID, question.Answer{Decision: question.Always, Answers: question.TextEach(map[string]string{"Which?": "this"})}},
		{list[0].ID, question.Answer{Decision: question.Once}},
		{list[0].ID, question.Answer{Decision: question.Once, Answers: question.TextEach(map[string]string{"Which?": "this", "What?": "that"})}},
	} {
		_, err := b.QuestionAnswer(b.ctx, b.id, c.id, c.answer)
		requireCode(t, failure.Invalid, err)
	}
	for _, q := range b.questions(t) {
		require.Equal(t, question.Open, q.Status, "the refused answer changed nothing")
	}
	_, err := b.QuestionAnswer(b.ctx, b.id, session.NewID(session.QuestionPrefix), question.Answer{Decision: question.Once})
	requireCode(t, failure.NoQuestion, err)
	_, err = b.QuestionAnswer(b.ctx, session.NewID(session.SessionPrefix), list[0].ID, question.Answer{Decision: question.Once})
	requireCode(t, failure.NoSession, err)
	other := b.session(t)
	_, err = b.QuestionAnswer(b.ctx, other, list[0].ID, question.Answer{Decision: question.Reject})
	requireCode(t, failure.NoQuestion, err)
}

func TestLateAnswerIsRefusedAndQuestionExpires(t *testing.T) {
	t.Parallel()
	b, run, _ := asking(t, -time.Second, permission)
	q := b.questions(t)[0]
	position := b.position(t)
	_, err := b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Once})
	requireCode(t, failure.Expired, err)
	got, err := b.QuestionExpire(b.ctx, b.id, q.ID)
	require.NoError(t, err)
	require.Equal(t, question.Expired, got.Status)
	require.Equal(t, []string{event.TypeQuestionResolved}, b.types(t, position), "reported once, whichever attempt noticed")
	pending, err := b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Len(t, pending, 1, "the agent must still be notified")
}

func TestQuestionDoesNotExpireEarly(t *testing.T) {
	t.Parallel()
	b, _, _ := asking(t, time.Hour, permission)
	got, err := b.QuestionExpire(b.ctx, b.id, b.questions(t)[0].ID)
	require.NoError(t, err)
	require.Equal(t, question.Open, got.Status)
}

func TestAgentWithdrawsQuestion(t *testing.T) {
	t.Parallel()
	b, run, add := asking(t, time.Hour, permission, inquiry)
	answered := b.questions(t)[1]
	_, err := b.QuestionAnswer(b.ctx, b.id, answered.ID, question.Answer{Decision: question.Reject})
	require.NoError(t, err)
	position := b.position(t)
	add.Events, add.Questions, add.LastFrame = nil, nil, 4
	add.Resolved = []eventlog.Resolution{{Frame: 4, AgentID: "p1"}, {Frame: 4, AgentID: "i1"}, {Frame: 4, AgentID: "never asked"}}
	require.NoError(t, b.appendOne(t, add))
	require.Equal(t, []string{event.TypeQuestionResolved}, b.types(t, position), "the other had its answer")
	list := b.questions(t)
	require.Equal(t, question.Cancelled, list[0].Status)
	require.Equal(t, session.ReasonWithdrawn, list[0].Reason)
	require.Equal(t, question.Answered, list[1].Status)
	pending, err := b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Empty(t, pending)
}

func TestQuestionEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	b, runID, _ := asking(t, time.Hour, permission)
	position := b.position(t)
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted})
	require.NoError(t, err)
	require.Equal(t, event.TypeQuestionResolved, b.types(t, position)[0], "before the end of the turn")
	q := b.questions(t)[0]
	require.Equal(t, question.Cancelled, q.Status)
	require.Equal(t, question.ReasonTurnEnded, q.Reason)
	_, err = b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Once})
	requireCode(t, failure.Cancelled, err)
}

// TestDisplacedAttemptReportsNothing: the writes of a replaced attempt may not have arrived, so the
// next attempt must find the answer to send, including one that was already sent.
func TestDisplacedAttemptReportsNothing(t *testing.T) {
	t.Parallel()
	b, runID, _ := asking(t, time.Hour, permission)
	q := b.questions(t)[0]
	_, err := b.RunAttach(b.ctx, runID, "newer", run.Dispatch{No: 1, Attempt: 3}, nil)
	require.NoError(t, err)
	_, err = b.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{Decision: question.Once})
	require.NoError(t, err)
	require.NoError(t, b.QuestionsDelivered(b.ctx, "token", []string{q.ID}))
	pending, err := b.QuestionsPending(b.ctx, runID, false)
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.NoError(t, b.QuestionsDelivered(b.ctx, "newer", []string{q.ID}))
	pending, err = b.QuestionsPending(b.ctx, runID, false)
	require.NoError(t, err)
	require.Empty(t, pending)
	pending, err = b.QuestionsPending(b.ctx, runID, true)
	require.NoError(t, err)
	require.Len(t, pending, 1)
}

func TestPolicyDecisionsAreStoredButNotListed(t *testing.T) {
	t.Parallel()
	b, run, add := asking(t, time.Hour)
	position := b.position(t)
	long := permission
	long.ID = strings.Repeat("\x00x", 3000)
	add.Events, add.LastFrame = nil, 4
	add.Questions = []eventlog.Question{{Frame: 4, Asked: long, At: time.Now(), ExpiresAt: time.Now(), Decided: &question.Answer{Decision: question.Reject}}}
	require.NoError(t, b.appendOne(t, add), "agents choose their ids as they like")
	require.Empty(t, b.questions(t))
	require.Equal(t, position, b.position(t), "no event")
	pending, err := b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.Equal(t, question.Reject, pending[0].Answer.Decision)
	add.Questions, add.LastFrame = nil, 5
	add.Resolved = []eventlog.Resolution{{Frame: 5, AgentID: long.ID}}
	require.NoError(t, b.appendOne(t, add))
	pending, err = b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Empty(t, pending)
	require.Equal(t, position, b.position(t))
}

func TestQuestionsComeInPages(t *testing.T) {
	t.Parallel()
	var many []question.Asked
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		q := permission
		q.ID = id
		many = append(many, q)
	}
	b, _, _ := asking(t, time.Hour, many...)
	var got, cursor string
	for {
		items, next, err := b.QuestionList(b.ctx, b.id, question.Open, 2, cursor)
		require.NoError(t, err)
		for _, q := range items {
			got += q.Asked.ID
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, "edcba", got)
	none, _, err := b.QuestionList(b.ctx, b.id, question.Answered, 0, "")
	require.NoError(t, err)
	require.Empty(t, none)
	_, _, err = b.QuestionList(b.ctx, session.NewID(session.SessionPrefix), "", 0, "")
	requireCode(t, failure.NoSession, err)
	_, _, err = b.QuestionList(b.ctx, b.id, "", 0, "not a cursor")
	requireCode(t, failure.Invalid, err)
}

func TestInboxHasQuestionsOfAllSessionsOpenOnesFirst(t *testing.T) {
	t.Parallel()
	first, _, _ := asking(t, time.Hour, permission, inquiry)
	list := first.questions(t)
	_, err := first.QuestionAnswer(first.ctx, first.id, list[1].ID, question.Answer{Decision: question.Once})
	require.NoError(t, err)
	// Another session of the same database, whose run has ended: its question was cancelled.
	other := &harness{DB: first.DB, url: first.url, ctx: first.ctx}
	other.id = other.session(t)
	other.running(t)
	run := other.begin(t, other.submit(t, "2"))
	for _, status := range []string{"open", "cancelled", "open"} {
		first.sql(t, `INSERT INTO questions (id, session_id, run_id, agent_id, asked, status, created_at, expires_at, resolved_at)
			SELECT $1, $2, $5, $1, asked, $3, now(), now() + interval '1 hour', CASE WHEN $3 <> 'open' THEN now() END FROM questions WHERE id = $4`,
			session.NewID(session.QuestionPrefix), other.id, status, list[0].ID, run)
	}
	var got []question.Question
	cursor, pages := "", 0
	for more := true; more; more = cursor != "" {
		var items []question.Question
		items, cursor, err = first.QuestionInbox(first.ctx, "", 2, cursor)
		require.NoError(t, err)
		got = append(got, items...)
		pages++
	}
	require.Equal(t, 3, pages)
	var statuses []question.Status
	sessions := map[string]int{}
	for i, q := range got {
		statuses = append(statuses, q.Status)
		sessions[q.SessionID]++
		if i > 0 && got[i-1].Status == q.Status {
			require.Greater(t, got[i-1].ID, q.ID, "newest first")
		}
	}
	require.Equal(t, []question.Status{question.Open, question.Open, question.Open, question.Answered, question.Cancelled}, statuses)
	require.Equal(t, map[string]int{first.id: 2, other.id: 3}, sessions)
	open, _, err := first.QuestionInbox(first.ctx, question.Open, 10, "")
	require.NoError(t, err)
	require.Len(t, open, 3)
	_, cursor, err = first.QuestionInbox(first.ctx, question.Open, 1, "")
	require.NoError(t, err)
	_, _, err = first.QuestionInbox(first.ctx, question.Answered, 1, cursor)
	requireCode(t, failure.Invalid, err)
}
