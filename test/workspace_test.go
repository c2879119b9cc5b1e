package test

import (
	"net/http"
	"net/http/cgi" // serves git to this test alone
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const plantedPassword = "hunter2-planted-in-git"

// gitServer serves one repository over HTTP to clients with the password. It returns its base URL
// and the number of refused requests.
func gitServer(t *testing.T) (base string, refused *atomic.Int64) {
	t.Helper()
	root := t.TempDir()
	git := func(dir string, args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
	}
	work := filepath.Join(root, "work")
	require.NoError(t, os.Mkdir(work, 0o755))
	git(work, "init", "--quiet", "--initial-branch=main")
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("on main\n"), 0o600))
	git(work, "add", ".")
	git(work, "commit", "--quiet", "-m", "first")
	git(work, "checkout", "--quiet", "-b", "feature")
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("on the feature branch\n"), 0o600))
	git(work, "commit", "--quiet", "-am", "second")
	git(work, "checkout", "--quiet", "main")
	git(root, "clone", "--quiet", "--bare", work, "repo.git")

	core, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	}
	refused = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "robot" || password != plantedPassword {
			refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, refused
}

// TestWorkspaceAtCreation clones a private repository with credentials that the session only refers
// to, runs the setup script once, and checks that the planted password appears nowhere else.
func TestWorkspaceAtCreation(t *testing.T) { //nolint:tparallel // one after the other, of one system
	t.Parallel()
	s := startTemporalStack(t, nil)
	base, refused := gitServer(t)
	host := strings.TrimPrefix(base, "http://")

	t.Run("without credentials it ends in error, with the reason", func(t *testing.T) { //nolint:paralleltest // before the secret is stored
		id := s.create(t, object{"sandbox": "eager", "workspace": object{"repoUrl": base + "/repo.git"}})
		failed := s.waitStatus(t, id, "error", 60*time.Second)
		require.Contains(t, failed["statusReason"], "clone the repository")
		require.Contains(t, failed["statusReason"], "git:"+host, "the reason names the missing secret")
		require.Positive(t, refused.Load())

		s.must(t, http.StatusCreated, "PUT", "/api/secrets/git:"+host, object{"value": "robot:" + plantedPassword})
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/recover", nil)
		s.waitStatus(t, id, "running", 60*time.Second)
		s.prompt(t, id, "p", "$ cat README")
		require.Equal(t, "completed", s.waitPrompt(t, id, "p", within)["status"])
		require.Contains(t, s.text(t, id), "on main")
	})

	t.Run("a wrong repository is corrected", func(t *testing.T) { //nolint:paralleltest // the system is stopped below
		id := s.create(t, object{
			"workspace": object{"repoUrl": base + "/typo.git", "ref": "feature"}, "prompt": object{"id": "waits", "content": "$ cat README"},
		})
		failed := s.waitStatus(t, id, "error", 60*time.Second)
		require.Contains(t, failed["statusReason"], "/typo.git/' not found")
		refused := s.must(t, http.StatusConflict, "POST", "/api/sessions/"+id+"/prompts", object{"content": "more"})
		require.Equal(t, "session_in_error", refused["code"])
		require.Contains(t, refused["detail"], "/typo.git/' not found; POST recover to try again (after a PATCH of workspace")
		require.Contains(t, s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/prompts/waits", nil)["blockedReason"], "/typo.git/' not found")

		s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"workspace": object{"repoUrl": base + "/repo.git", "ref": "feature"}})
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/recover", nil)
		require.Equal(t, "completed", s.waitPrompt(t, id, "waits", 60*time.Second)["status"])
		require.Contains(t, s.text(t, id), "on the feature branch")
		again := s.must(t, http.StatusConflict, "PATCH", "/api/sessions/"+id, object{"workspace": object{}})
		require.Equal(t, "workspace_in_use", again["code"])
	})

	id := s.create(t, object{
		"workspace": object{
			"repoUrl": base + "/repo.git", "ref": "feature",
			"setup": "echo run >> .git/setup-runs\necho prepared > prepared.txt",
		},
		"prompt": object{"id": "first", "content": "$ cat README prepared.txt .git/setup-runs; git status --short; git log --oneline | wc -l; env"},
	})
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	text := s.text(t, id)
	require.Contains(t, text, "on the feature branch")
	require.Contains(t, text, "prepared")
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", within)
	s.prompt(t, id, "second", "$ wc -l .git/setup-runs; git config --list; cat .git/config")
	require.Equal(t, "completed", s.waitPrompt(t, id, "second", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "1 .git/setup-runs", "the setup ran once")
	require.Equal(t, "full", s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["receipt"].(object)["kind"])

	t.Run("a setup that fails is reported with what it printed", func(t *testing.T) { //nolint:paralleltest // the system is stopped below
		id := s.create(t, object{"sandbox": "eager", "workspace": object{"setup": "echo half done\necho no such tool >&2\nexit 9"}})
		failed := s.waitStatus(t, id, "error", 60*time.Second)
		require.Contains(t, failed["statusReason"], "exit code 9")
		require.Contains(t, failed["statusReason"], "no such tool")
	})

	require.NotContains(t, s.text(t, id), plantedPassword)
	s.stop(t)
	s.filesAreClean(t, plantedPassword)
}

// TestWorkerKilledDuringSetupChangesNothing kills the worker while a setup script runs: the next one
// waits for the same script, and the session never shows an error.
func TestWorkerKilledDuringSetupChangesNothing(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	// The setup script can reach this machine's listed ports, so a server detects that it runs and
	// lets it end.
	began, proceed := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if runs.Add(1) == 1 {
			close(began)
		}
		<-proceed
	}))
	release := sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(func() {
		release()
		server.Close()
	})
	id := s.create(t, object{
		"workspace": object{"setup": "curl -fsS " + insideURL(server.URL) + " && echo prepared >prepared"},
		"prompt":    object{"id": "first", "content": "$ cat prepared"},
	})
	select {
	case <-began:
	case <-time.After(60 * time.Second):
		require.FailNow(t, "the setup script did not start")
	}
	old := s.child(t, "overwinter worker")
	require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
	require.Eventually(t, func() bool { return s.child(t, "overwinter worker") != old }, 60*time.Second, 50*time.Millisecond)
	release()
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 120*time.Second)["status"])
	require.Contains(t, s.text(t, id), "prepared")
	require.EqualValues(t, 1, runs.Load(), "the script ran once")
	stream := s.follow(t, id)
	stream.status(t, "running", 1)
	for _, e := range stream.all(t) {
		require.NotContains(t, string(e.Data), `"status":"error"`)
	}
}
