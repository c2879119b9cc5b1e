package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

type masks func() (*secret.Masker, error)

func (m masks) Masker(context.Context) (*secret.Masker, error) { return m() }

func TestResponsesAreMasked(t *testing.T) {
	t.Parallel()
	const planted = "planted-value-0123456789"
	masker := secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue(planted)}})
	var failed error
	b := setup(t, func(c *api.Config) {
		c.Masks = masks(func() (*secret.Masker, error) { return masker, failed })
	})
	id := b.store.Put(session.Hibernated)
	asked := question.Asked{
		ID: "a1", Kind: question.Permission, ToolName: "shell", Title: "run " + planted, Input: json.RawMessage(`{"command":"curl -H ` + planted + `"}`),
	}
	put := question.Question{
		ID: session.NewID(session.QuestionPrefix), SessionID: id, Asked: asked, Status: question.Open,
		CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
	}
	b.store.With(id, func(r *apitest.Row) {
		r.Files = []workspacefile.Content{file("env.txt", "KEY="+planted+"\n"), file("plain.txt", "nothing"), file("keys/"+planted+".txt", "named so")}
		r.Diff = &workspacefile.Diff{Files: []workspacefile.Delta{{Path: "keys/" + planted + ".txt", Change: workspacefile.Created}}, Git: &workspacefile.GitState{Branch: "fix/" + planted}, Patch: []byte("+KEY=" + planted + "\n"), At: time.Now()}
		r.Transcripts = []transcript.File{{Path: "t.jsonl", Data: []byte(`{"text":"` + planted + `"}` + "\n")}}
		r.Questions = append(r.Questions, put)
	})
	url := "/api/sessions/" + id
	paths := []string{"/files", "/files/env.txt", "/diff", "/git", "/transcript", "/transcript?path=t.jsonl", "/questions", "/questions/" + put.ID}
	for _, path := range paths {
		r := b.do("GET", url+path, "")
		require.Equal(t, http.StatusOK, r.status, path)
		require.NotContains(t, string(r.body), planted, path)
		require.Contains(t, string(r.body), "[redacted KEY]", path)
	}
	named := b.do("GET", url+"/files/keys/%5Bredacted%20KEY%5D.txt", "")
	require.Equal(t, "named so", string(named.body), "the path that the list shows leads to the file")
	require.NotContains(t, named.header.Get("Content-Disposition"), planted)
	b.do("GET", url+"/files/other/%5Bredacted%20KEY%5D.txt", "").problem(http.StatusNotFound, "file_not_found")
	tag := b.do("GET", url+"/files/env.txt", "").header.Get("ETag")
	require.NotEqual(t, `"abc123"`, tag, "masked text has its own ETag")
	require.Equal(t, `"abc123"`, b.do("GET", url+"/files/plain.txt", "").header.Get("ETag"))

	// If the secrets cannot be read, no data is returned.
	failed = failure.Errorf(failure.Unavailable, "no key")
	for _, path := range paths {
		b.do("GET", url+path, "").problem(http.StatusServiceUnavailable, "unavailable")
	}
}
