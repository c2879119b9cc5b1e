package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asked starts a turn that asks a question, and returns when the question is stored.
func (b *harness) asked(t *testing.T) (activities.TurnRequest, *pending[activities.TurnResult], question.Question) {
	t.Helper()
	in := b.claim(t, b.create(t), "ask: Which colour? | Red | Blue")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "question")
	items, _, err := b.db.QuestionList(b.ctx, b.id, question.Open, 0, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	return in, turn, items[0]
}

func (b *harness) answer(t *testing.T, q question.Question) {
	t.Helper()
	_, err := b.db.QuestionAnswer(b.ctx, b.id, q.ID, question.Answer{
		Decision: question.Once, Answers: question.TextEach(map[string]string{"Which colour?": "Green"}),
	})
	require.NoError(t, err)
}

func TestAnswerGivenWithoutWorkerIsDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in, turn, q := b.asked(t)
	close(turn.stop) // the worker stops
	_, err := turn.wait(t)
	require.Equal(t, activities.HandOver, activities.TypeOf(err))
	b.answer(t, q)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Contains(t, b.printed(t, in.RunID), "Green")
}

// TestAnswerLostInBrokenLinkIsResent loses an answer that is recorded as delivered, but has not
// reached the agent.
func TestAnswerLostInBrokenLinkIsResent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in, turn, q := b.asked(t)
	close(turn.stop)
	_, err := turn.wait(t)
	require.Equal(t, activities.HandOver, activities.TypeOf(err))
	b.answer(t, q)
	b.sql(t, "UPDATE questions SET delivered_at = now() WHERE id = $1", q.ID)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Contains(t, b.printed(t, in.RunID), "Green")
}

func TestUnansweredQuestionExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.db.SessionPatch(b.ctx, b.id, session.Patch{Options: &session.Options{QuestionTimeout: session.Duration(time.Second)}})
	require.NoError(t, err)
	in := b.claim(t, b.create(t), "ask: Which colour? | Red | Blue\nso be it")
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Contains(t, b.printed(t, in.RunID), "No answer came in time")
	require.Contains(t, b.output(t, in.RunID), "so be it")
	items, _, err := b.db.QuestionList(b.ctx, b.id, question.Expired, 0, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
}
