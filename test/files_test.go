package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// served is a file of a session's workspace as the API returns it.
type served struct {
	status int
	header http.Header
	body   string
}

func (s *stack) content(t *testing.T, sessionID, path string, headers ...string) served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.api+"/api/sessions/"+sessionID+"/files/"+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return served{response.StatusCode, response.Header, string(body)}
}

// paths returns the files of a session's workspace.
func (s *stack) paths(t *testing.T, sessionID string) []string {
	t.Helper()
	page := s.must(t, http.StatusOK, "GET", "/api/sessions/"+sessionID+"/files", nil)
	paths := []string{}
	for _, raw := range page["items"].([]any) {
		paths = append(paths, raw.(object)["path"].(string))
	}
	return paths
}

// changes returns the file events of a run, as "CHANGE PATH". A file that is read while it is
// written is reported in its first and in its final state. Both reports count as one change.
func changes(t *testing.T, events []event) []string {
	t.Helper()
	var out []string
	last := ""
	for _, e := range events {
		if e.Type == "file" {
			var d struct{ Path, Change string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			if d.Change != "modified" || d.Path != last {
				out = append(out, d.Change+" "+d.Path)
			}
			last = d.Path
		}
	}
	return out
}

// TestWorkspaceFiles reads the agent's files while it works, after its worker was killed, and while
// its session sleeps.
func TestWorkspaceFiles(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{"prompt": object{"id": "first", "content": strings.Join([]string{
		"write notes.txt: one", "$ mkdir -p src && printf 'package main\\n' > src/main.go && ln -s /etc/passwd link",
		"sleep 8s", "write notes.txt: two", "$ printf '\\211PNG\\r\\n\\032\\n' > shot.png",
	}, "\n")}})
	stream := s.follow(t, id)

	// The file can be read while the turn runs.
	eventually(t, 60*time.Second, "the file is reported in the turn", func() error {
		if got := changes(t, stream.all(t)); len(got) < 2 {
			return fmt.Errorf("only %v", got)
		}
		return nil
	})
	eventually(t, 60*time.Second, "the file is whole", func() error {
		if got := s.content(t, id, "notes.txt").body; got != "one" {
			return fmt.Errorf("it holds %q", got)
		}
		return nil
	})
	prompt := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/prompts/first", nil)
	require.Equal(t, "processing", prompt["status"], "the turn ended before its file was read")

	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	require.Equal(t, []string{"notes.txt", "shot.png", "src/main.go"}, s.paths(t, id), "a link is not a file")
	require.ElementsMatch(t, []string{"created notes.txt", "created src/main.go", "modified notes.txt", "created shot.png"},
		changes(t, stream.all(t)))
	ended := false
	for _, e := range stream.all(t) {
		ended = ended || e.Type == "turn_end"
		require.False(t, ended && e.Type == "file", "a file event after the end of its turn")
	}

	// A worker is killed in the middle of a turn that writes: each change is reported once.
	s.prompt(t, id, "second", "write a.txt: a\nsleep 2s\nwrite b.txt: b\n$ rm notes.txt\nsleep 2s\nwrite c.txt: c")
	stream.wait(t, 60*time.Second, "the first file is reported", func(e event) bool {
		return e.Type == "file" && strings.Contains(string(e.Data), "a.txt")
	})
	s.killChild(t, "overwinter", "worker")
	require.Equal(t, "completed", s.waitPrompt(t, id, "second", 90*time.Second)["status"])
	require.ElementsMatch(t, []string{"created a.txt", "created b.txt", "created c.txt", "deleted notes.txt"},
		changes(t, stream.all(t))[4:])

	diff := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/diff", nil)
	require.EqualValues(t, 5, diff["filesChanged"])
	require.Contains(t, diff["patch"], "+++ b/a.txt\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n")
	require.NotContains(t, diff["patch"], "notes.txt", "it was not there at the beginning, and is not now")
	require.Nil(t, diff["git"])

	// A repository that the agent creates is not the base of the diff, but has a state.
	s.prompt(t, id, "third", strings.Join([]string{
		"$ git init -q -b trunk . && printf 'ignored/\\n' > .gitignore && mkdir ignored && echo x > ignored/x",
		"$ git add src && git -c user.name=a -c user.email=a@example.com commit -q -m first",
	}, "\n"))
	require.Equal(t, "completed", s.waitPrompt(t, id, "third", 60*time.Second)["status"])
	require.Equal(t, []string{".gitignore", "a.txt", "b.txt", "c.txt", "shot.png", "src/main.go"}, s.paths(t, id))

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 60*time.Second)
	diff = s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/diff", nil)
	git := diff["git"].(object)
	require.Equal(t, "trunk", git["branch"])
	require.Equal(t, true, git["dirty"])
	require.Len(t, git["head"], 40)
	source := s.content(t, id, "src/main.go")
	require.Equal(t, "package main\n", source.body)
	require.Equal(t, "nosniff", source.header.Get("X-Content-Type-Options"))
	require.Equal(t, http.StatusNotModified, s.content(t, id, "src%2Fmain.go", "If-None-Match", source.header.Get("ETag")).status)
	require.Equal(t, "image/png", s.content(t, id, "shot.png").header.Get("Content-Type"))
	gone := s.content(t, id, "notes.txt")
	require.Equal(t, http.StatusNotFound, gone.status)
	require.Contains(t, gone.body, "file_not_found")
	s.waitStatus(t, id, "hibernated", time.Second) // reading does not wake the session

	// Files that were written before the session slept are not reported again when it wakes.
	before := len(changes(t, stream.all(t)))
	s.prompt(t, id, "fourth", "write a.txt: changed")
	require.Equal(t, "completed", s.waitPrompt(t, id, "fourth", 60*time.Second)["status"])
	stream.wait(t, within, "the stream has the last turn", func(e event) bool {
		return e.Type == "turn_end" && strings.Contains(string(e.Data), `"promptId":"fourth"`)
	})
	require.Equal(t, []string{"modified a.txt"}, changes(t, stream.all(t))[before:])
}

// TestWorkspaceDiffOfRepository compares with the commit that was cloned.
func TestWorkspaceDiffOfRepository(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	base, _ := gitServer(t)
	s.must(t, http.StatusCreated, "PUT", "/api/secrets/git:"+strings.TrimPrefix(base, "http://"), object{"value": "robot:" + plantedPassword})
	id := s.create(t, object{
		"workspace": object{"repoUrl": base + "/repo.git"},
		"prompt": object{"id": "first", "content": strings.Join([]string{
			"$ echo second line >> README; echo new > new.txt; mkdir node_modules; echo x > node_modules/x",
			"$ git -c user.name=a -c user.email=a@example.com commit -qam changed",
		}, "\n")},
	})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	stream.wait(t, within, "the stream has the turn", func(e event) bool { return e.Type == "turn_end" })
	require.Equal(t, []string{"README", "new.txt"}, s.paths(t, id), "what was cloned is listed")
	require.ElementsMatch(t, []string{"modified README", "created new.txt"}, changes(t, stream.all(t)), "cloned files are not changes")
	diff := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/diff", nil)
	require.EqualValues(t, 2, diff["filesChanged"], "%v", diff)
	require.EqualValues(t, 2, diff["additions"])
	require.EqualValues(t, 0, diff["deletions"])
	require.Contains(t, diff["patch"], "+second line")
	require.NotContains(t, diff["patch"], "node_modules")
	git := diff["git"].(object)
	require.Equal(t, "main", git["branch"])
	require.NotEqual(t, diff["base"], git["head"], "the agent has committed since")
	require.Equal(t, true, git["dirty"])
}
