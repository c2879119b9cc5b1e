package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/portable"
)

// export returns the portable archive of a session's newest bundle.
func (s *stack) export(t *testing.T, id string) []byte {
	t.Helper()
	bundle := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["head"].(string)
	url := "/api/bundles/" + bundle + "/export"
	require.Eventually(t, func() bool {
		status, got, err := s.call("POST", url, nil)
		return err == nil && (status == http.StatusOK || status == http.StatusAccepted) && got["status"] != "pending"
	}, 2*time.Minute, 200*time.Millisecond)
	require.Equal(t, "ready", s.must(t, http.StatusOK, "POST", url, nil)["status"])
	status, archive := s.bytes(t, "GET", url, nil)
	require.Equal(t, http.StatusOK, status, "%s", archive)
	return archive
}

// TestSessionContinuesInAnotherInstallation exports a session of one installation and imports it
// into another one: it wakes there with its repository, its files and the agent's memory, can be
// forked before that, and its receipt names its origin.
func TestSessionContinuesInAnotherInstallation(t *testing.T) {
	t.Parallel()
	home, away := startWholeStack(t), startStack(t)
	id := home.create(t, object{"title": "mine", "prompt": object{"id": "first", "content": `my name is Robin
$ git init -q -b work . && git config user.name a && git config user.email a@example.com && echo 1 > committed && echo ignored > .gitignore && git add . && git commit -qm one
$ echo 2 > committed; echo new > untracked; echo x > ignored; ln -s committed link`}})
	require.Equal(t, "completed", home.waitPrompt(t, id, "first", time.Minute)["status"])
	home.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	home.waitStatus(t, id, "hibernated", time.Minute)

	archive := home.export(t, id)
	m, err := portable.Read(bytes.NewReader(archive), func(portable.Entry, io.Reader) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "work", m.Git.Branch)
	require.Equal(t, []string{"ignored (ignored by the repository)"}, m.Missing)
	require.Equal(t, "hibernated", home.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["status"], "an export wakes nothing")

	status, answer := away.bytes(t, "POST", "/api/bundles/import", archive[:len(archive)-10])
	require.Equal(t, http.StatusBadRequest, status, "%s", answer)
	require.Empty(t, away.must(t, http.StatusOK, "GET", "/api/sessions", nil)["items"], "nothing is left of an archive that is refused")

	moved := away.importArchive(t, archive)
	require.Equal(t, "hibernated", moved["status"])
	require.Equal(t, "mine", moved["title"])
	there := moved["id"].(string)
	require.Contains(t, away.text(t, there), "my name is Robin", "the conversation can be read at once")

	fork := away.must(t, http.StatusCreated, "POST", "/api/sessions/"+there+"/fork", object{"bundleId": moved["head"]})["id"].(string)
	for _, id := range []string{there, fork} {
		away.prompt(t, id, "look", "recall\n$ cat committed untracked link; git log --format=%s; git status --porcelain; cat ignored")
		require.Equal(t, "completed", away.waitPrompt(t, id, "look", 2*time.Minute)["status"])
		text := away.text(t, id)
		require.Contains(t, text, "my name is Robin")
		require.Contains(t, text, "I have had 2 prompts")
		require.Contains(t, text, "2\nnew\n2\none\n M committed\n?? link\n?? untracked")
		receipt := away.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["receipt"].(object)
		require.Equal(t, "partial", receipt["kind"])
		require.Equal(t, []any{"ignored (ignored by the repository)"}, receipt["missing"])
		require.Equal(t, "the overwinter session "+m.Source.SessionID, receipt["moved"])
	}

	// An imported session can be exported again, before and after it has worked.
	back := home.importArchive(t, away.export(t, there))["id"].(string)
	home.prompt(t, back, "back", "recall")
	require.Equal(t, "completed", home.waitPrompt(t, back, "back", 2*time.Minute)["status"])
	require.Contains(t, home.text(t, back), "I have had")
}

func (s *stack) importArchive(t *testing.T, archive []byte) object {
	t.Helper()
	var got object
	eventually(t, 60*time.Second, "the archive is imported", func() error {
		status, answer, err := s.tryBytes(t.Context(), "POST", "/api/bundles/import", archive)
		if err != nil {
			return err
		}
		if status >= 500 {
			return fmt.Errorf("%d %s", status, answer)
		}
		require.Equal(t, http.StatusCreated, status, "%s", answer)
		return json.Unmarshal(answer, &got)
	})
	return got
}

// bytes sends an archive and returns the response.
func (s *stack) bytes(t *testing.T, method, path string, body []byte) (status int, answer []byte) {
	t.Helper()
	status, answer, err := s.tryBytes(t.Context(), method, path, body)
	require.NoError(t, err)
	return status, answer
}

func (s *stack) tryBytes(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.api+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
