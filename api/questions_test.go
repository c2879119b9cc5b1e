package api_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var (
	mayI = question.Asked{
		ID: "q1", Kind: question.Permission, ToolName: "Bash", ToolUseID: "u", Title: "May I?", Input: []byte(`{"command":"ls"}`),
	}
	which = question.Asked{ID: "q2", Kind: question.Inquiry, ToolName: "Ask", Title: "Which?", Inquiries: []question.Item{
		{Question: "Which?", Options: []question.Option{{Label: "This"}, {Label: "That", Description: "of them"}}},
		{Question: "How many?", Multiple: true},
	}}
)

func TestQuestionsAreListedAndAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	first, second := b.store.Ask(id, mayI, time.Hour), b.store.Ask(id, which, time.Hour)
	path := "/api/sessions/" + id + "/questions"

	var page struct {
		Items []resource.QuestionJSON `json:"items"`
	}
	b.do("GET", path+"?status=open", "").into(&page)
	require.Len(t, page.Items, 2)
	require.Equal(t, second, page.Items[0].ID)
	require.Equal(t, "May I?", page.Items[1].Title)
	require.JSONEq(t, `{"command":"ls"}`, string(page.Items[1].Input))

	elsewhere := b.store.Ask(b.store.Put(session.Running), mayI, time.Hour)
	b.do("GET", "/api/questions?status=open", "").into(&page)
	require.Len(t, page.Items, 3, "of all sessions")
	require.True(t, slices.ContainsFunc(page.Items, func(q resource.QuestionJSON) bool { return q.ID == elsewhere && q.SessionID != id }))
	b.do("GET", "/api/questions?status=closed", "").problem(http.StatusBadRequest, "invalid_request")

	var got resource.QuestionJSON
	a := b.do("POST", path+"/"+first+"/answer", `{"answer":"always"}`)
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	a.into(&got)
	require.Equal(t, question.Answered, got.Status)
	require.Equal(t, question.Always, got.Answer)
	require.NotNil(t, got.ResolvedAt)
	b.do("POST", path+"/"+first+"/answer", `{"answer":"once"}`).problem(http.StatusConflict, "question_answered")

	b.do("POST", path+"/"+second+"/answer", `{"answers":{"Which?":"That","How many?":["one","two"]}}`).into(&got)
	require.Equal(t, map[string]question.Words{"Which?": question.Text("That"), "How many?": question.Options("one", "two")}, got.Answers)
	require.Equal(t, question.Once, got.Answer)

	b.do("GET", path+"/"+second, "").into(&got)
	require.Equal(t, question.Answered, got.Status)
	b.do("GET", path+"?status=open", "").into(&page)
	require.Empty(t, page.Items)
	require.Empty(t, b.temp.TakeCalls(), "the row is authoritative; the commit wakes the worker of the turn")
}

func TestLateAnswerIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	q := b.store.Ask(id, mayI, -time.Second)
	b.do("POST", "/api/sessions/"+id+"/questions/"+q+"/answer", `{"answer":"once"}`).problem(http.StatusConflict, "question_expired")
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/questions/"
	permission, inquiry := b.store.Ask(id, mayI, time.Hour), b.store.Ask(id, which, time.Hour)
	for _, c := range []struct{ question, body, field string }{
		{permission, `{}`, "answer"},
		{permission, `{"answer":"yes"}`, "answer"},
		{permission, `{"answer":7}`, "answer"},
		{permission, `{"answer":"once","answers":{"x":"y"}}`, "answers"},
		{permission, `{"answer":"once","why":"because"}`, "why"},
		{permission, `{"answer":"reject","message":7}`, "message"},
		{inquiry, `{"answers":7}`, "answers"},
		{inquiry, `{"answers":{"Which?":7,"How many?":"x"}}`, "answers.Which?"},
		{inquiry, `{"answers":{"Which?":[7],"How many?":"x"}}`, "answers.Which?"},
		{inquiry, `{"answers":{"Which?":"This"}}`, "answers"},
		{inquiry, `{"answer":"always","answers":{"Which?":"This","How many?":"x"}}`, "answer"},
	} {
		p := b.do("POST", path+c.question+"/answer", c.body).problem(http.StatusBadRequest, "invalid_request")
		require.NotEmpty(t, p.Errors, c.body)
		require.Equal(t, c.field, p.Errors[0].Field, c.body)
	}
	for _, q := range b.store.Row(id).Questions {
		require.Equal(t, question.Open, q.Status)
	}
	b.do("POST", path+session.NewID(session.QuestionPrefix)+"/answer", `{"answer":"once"}`).problem(http.StatusNotFound, "question_not_found")
	b.do("POST", path+"que_1/answer", `{"answer":"once"}`).problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/"+id+"/questions?status=shut", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/questions", "").problem(http.StatusNotFound, "session_not_found")
}

func TestSessionWithPermissionPolicyAsks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.do("POST", "/api/sessions", `{"agent":"demo","options":{"permissions":"ask","questionTimeout":"1h"}}`)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	require.Contains(t, string(a.body), `"options":{"permissions":"ask","questionTimeout":"1h0m0s"}`)
	for body, field := range map[string]string{
		`{"agent":"demo","options":{"permissions":"perhaps"}}`:     "options.permissions",
		`{"agent":"demo","options":{"questionTimeout":"1ms"}}`:     "options.questionTimeout",
		`{"agent":"demo","options":{"questionTimeout":"721h"}}`:    "options.questionTimeout",
		`{"agent":"demo","options":{"checkpoint":"1ms"}}`:          "options.checkpoint",
		`{"agent":"demo","options":{"questionTimeout":"a while"}}`: "options.questionTimeout",
	} {
		p := b.do("POST", "/api/sessions", body).problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field)
	}
}

// TestAnswerToSleepingSessionIsSignalled answers a question of a session without a running turn,
// whose worker would otherwise notice the answer.
func TestAnswerToSleepingSessionIsSignalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for status, want := range map[session.State]int{session.Running: 0, session.Hibernated: 1} {
		id := b.store.Put(status)
		question := b.store.Ask(id, mayI, time.Hour)
		b.temp.TakeCalls()
		a := b.do("POST", "/api/sessions/"+id+"/questions/"+question+"/answer", `{"answer":"once"}`)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		require.Len(t, b.temp.TakeCalls(), want, status)
	}
}
