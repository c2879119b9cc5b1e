package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func TestGitStateIsReturned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	require.JSONEq(t, `{"workspace":null,"reported":null,"pullRequest":null}`, string(b.do("GET", "/api/sessions/"+id+"/git", "").body))
	at := time.UnixMilli(1_000)
	run := "run_0190a0c0a0c070008000000000000001"
	b.store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{Base: "c0ffee", Git: &workspacefile.GitState{Branch: "fix", Head: "c1"}, At: at}
		r.Reports = conversation.Reports{
			Git: &conversation.Reported[conversation.GitState]{Value: conversation.GitState{Branch: "fix", BaseBranch: "main", CommitCount: 2}, RunID: run, At: at},
			PullRequest: &conversation.Reported[conversation.PullRequest]{
				Value: conversation.PullRequest{Operation: "create", Title: "Fix", Number: 7, State: "open"}, RunID: run, FirstAt: at, At: at.Add(time.Second),
			},
		}
	})
	require.JSONEq(t, `{"workspace":{"branch":"fix","head":"c1","dirty":false,"base":"c0ffee","computedAt":"1970-01-01T00:00:01.000Z"},
		"reported":{"branch":"fix","baseBranch":"main","commitCount":2,"runId":"`+run+`","at":"1970-01-01T00:00:01.000Z"},
		"pullRequest":{"title":"Fix","number":7,"state":"open","runId":"`+run+`","createdAt":"1970-01-01T00:00:01.000Z","updatedAt":"1970-01-01T00:00:02.000Z"}}`,
		string(b.do("GET", "/api/sessions/"+id+"/git", "").body))
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/git", "").problem(http.StatusNotFound, "session_not_found")
	b.do("GET", "/api/sessions/"+id+"/git?x=1", "").problem(http.StatusBadRequest, "invalid_request")
}

func TestScreenshotsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	require.JSONEq(t, `{"items":[],"nextCursor":null}`, string(b.do("GET", "/api/sessions/"+id+"/screenshots", "").body))
	image := "att_" + strings.Repeat("0", 32)
	b.store.With(id, func(r *apitest.Row) {
		r.Screenshots = []conversation.Shown{{
			Screenshot: conversation.Screenshot{Image: conversation.Image{ID: image, MediaType: "image/png", Bytes: 70}, Description: "the page"},
			Seq:        9, RunID: "run_1", At: time.UnixMilli(1_000),
		}}
	})
	require.JSONEq(t, `{"items":[{"seq":9,"image":{"id":"`+image+`","mediaType":"image/png","bytes":70},"description":"the page","runId":"run_1",
		"at":"1970-01-01T00:00:01.000Z"}],"nextCursor":null}`, string(b.do("GET", "/api/sessions/"+id+"/screenshots?limit=1", "").body))
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/screenshots", "").problem(http.StatusNotFound, "session_not_found")
	b.do("GET", "/api/sessions/"+id+"/screenshots?limit=201", "").problem(http.StatusBadRequest, "invalid_request")
}

func TestReviewCreatesPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	content := func() string {
		prompts := b.store.Row(id).Prompts
		return prompts[len(prompts)-1].Content
	}
	r := b.do("POST", "/api/sessions/"+id+"/review", "")
	require.Equal(t, http.StatusAccepted, r.status)
	require.Contains(t, r.header.Get("Location"), "/prompts/prm_")
	require.Contains(t, content(), "No changes since")
	require.Contains(t, content(), "report_review")

	files := []workspacefile.Delta{{Path: "a\n.go", Change: workspacefile.Modified, Additions: 2, Deletions: 1}, {Path: "p.png", Change: workspacefile.Created, Binary: true}}
	for range 100 {
		files = append(files, workspacefile.Delta{Path: "more", Change: workspacefile.Created})
	}
	b.store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{Base: "c0ffee", Files: files, FilesChanged: 2500, Additions: 2, Deletions: 1}
	})
	r = b.do("POST", "/api/sessions/"+id+"/review", `{"id":"look","instructions":" mind the tests "}`)
	require.Equal(t, http.StatusAccepted, r.status)
	for _, part := range []string{
		"Do not change any file.\n\nmind the tests\n", "(files: 2500, lines: +2 -1)", `- "a\n.go" modified, +2 -1`, `- "p.png" created, binary`, "- and 2400 more", "git diff c0ffee",
	} {
		require.Contains(t, content(), part)
	}
	stored := content()

	b.store.With(id, func(r *apitest.Row) { r.Diff = nil })
	again := b.do("POST", "/api/sessions/"+id+"/review", `{"id":"look","instructions":"mind the tests"}`)
	require.Equal(t, http.StatusOK, again.status, "the workspace has changed, the request has not")
	require.Equal(t, stored, content())
	b.do("POST", "/api/sessions/"+id+"/prompts", `{"id":"other","content":"hi"}`)
	b.do("POST", "/api/sessions/"+id+"/review", `{"id":"other"}`).problem(http.StatusConflict, "prompt_conflict")
	b.do("POST", "/api/sessions/"+id+"/review", `{"instructions":"`+strings.Repeat("ä", 10_001)+`"}`).problem(http.StatusBadRequest, "invalid_request")
	b.do("POST", "/api/sessions/"+id+"/review", `{"files":[]}`).problem(http.StatusBadRequest, "invalid_request")
	b.do("POST", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/review", "").problem(http.StatusNotFound, "session_not_found")
	b.do("POST", "/api/sessions/"+b.store.Put(session.Terminated)+"/review", "").problem(http.StatusConflict, "session_terminated")
}
