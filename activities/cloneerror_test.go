package activities_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// failingClone is a failing clone and its expected result.
type failingClone struct {
	path, ref string
	host      string // instead of the server's
	status    int    // of the server's answers; 0 if it serves the repository
	resolve   error  // of the worker's own look-up
	stored    bool   // credentials are stored for the host
	passing   bool   // the failure may be transient
	message   string
}

// lines collects the log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestPermanentCloneFailureIsNotRetried clones from a git server over HTTP.
func TestPermanentCloneFailureIsNotRetried(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	a := newAuthority(t)
	noHost := &net.DNSError{Err: "no such host", IsNotFound: true}
	for name, c := range map[string]failingClone{
		"UnknownRepository":  {path: "/nope.git", message: "not found"},
		"UnknownBranch":      {path: "/private.git", ref: "v9", message: "no branch, tag or commit v9"},
		"UnknownCommit":      {path: "/private.git", ref: strings.Repeat("1a", 20), message: "no branch, tag or commit 1a1a"},
		"NoRepositoryAtAll":  {path: "/private.git", status: http.StatusOK, message: "is this a git repository"},
		"NoCredentials":      {path: "/private.git", status: http.StatusUnauthorized, message: "store its credentials as the secret git:127.0.0.1"},
		"WrongCredentials":   {path: "/private.git", status: http.StatusUnauthorized, stored: true, message: "has its credentials"},
		"Forbidden":          {path: "/private.git", status: http.StatusForbidden, message: "error: 403"},
		"Gone":               {path: "/private.git", status: http.StatusGone, message: "error: 410"},
		"UnknownHost":        {path: "/x.git", host: "nowhere.invalid", resolve: noHost, message: "Could not resolve host"},
		"RefusedHost":        {path: "/x.git", host: "10.0.0.1:8443", message: "may not connect to 10.0.0.1:8443"},
		"ServerError":        {path: "/private.git", status: http.StatusServiceUnavailable, passing: true, message: "error: 503"},
		"TooManyRequests":    {path: "/private.git", status: http.StatusTooManyRequests, passing: true, message: "error: 429"},
		"NoAnswerFromDNS":    {path: "/x.git", host: "nowhere.invalid", resolve: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, passing: true, message: "Could not resolve host"},
		"NoServerOnOpenPort": {path: "/x.git", status: -1, passing: true, message: "unable to access"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := gitBackend(t)
			server := serveGit(t, a, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case c.status < 0:
					panic(http.ErrAbortHandler)
				case c.status == http.StatusUnauthorized:
					w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				}
				if c.status > 0 {
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte("<html>\n"))
					return
				}
				backend.ServeHTTP(w, r)
			}))
			u, err := url.Parse(server.url + c.path)
			require.NoError(t, err)
			if c.host != "" {
				u.Host = c.host
			}
			b := setup(t)
			b.trust(a)
			if c.stored {
				b.config.Secrets = gitSecret("git:" + u.Host)
			}
			logged := &lines{}
			b.config.Logger = slog.New(slog.NewTextHandler(logged, nil))
			b.config.Resolve = func(context.Context, string) ([]string, error) { return nil, c.resolve }
			b.build()
			b.sql(t, `UPDATE sessions SET workspace = jsonb_build_object('repoUrl', $2::text, 'ref', $3::text) WHERE id = $1`, b.id, u.String(), c.ref)
			_, err = b.beginCreate(t).wait(t)
			require.ErrorContains(t, err, c.message)
			if c.passing {
				require.False(t, activities.IsFinal(err), "%v", err)
				require.NotContains(t, logged.String(), "workspace stage failed")
				return
			}
			requireType(t, activities.Refused, err)
			app, ok := errors.AsType[*temporal.ApplicationError](err)
			require.True(t, ok)
			require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category(), "the engine logs no ERROR line for it")
			require.Equal(t, 1, strings.Count(logged.String(), "level=WARN"), "%s", logged)
			require.NotContains(t, logged.String(), "level=ERROR")
		})
	}
}

// A commit that no branch has is fetched by its hash.
func TestRefMayBeCommitOutsideBranches(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	a := newAuthority(t)
	backend := gitBackend(t)
	server := serveGit(t, a, true, backend)
	b := clones(t, a, server.url+"/private.git")
	run := func(argv ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*", "-C", gitRoot(t, backend)}, argv...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	commit := run("-C", "private.git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit-tree", "HEAD^{tree}", "-m", "aside")
	run("-C", "private.git", "config", "uploadpack.allowAnySHA1InWant", "true")
	b.sql(t, `UPDATE sessions SET workspace = jsonb_build_object('repoUrl', $2::text, 'ref', $3::text) WHERE id = $1`, b.id, server.url+"/private.git", commit)
	ready := b.create(t)
	require.Equal(t, commit+"\n", b.shell(t, ready.SandboxID, "git -C /workspace rev-parse HEAD"))
}

// A sandbox that was set up from earlier settings is not used again.
func TestRecoveryUsesCorrectedWorkspace(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	a := newAuthority(t)
	server := serveGit(t, a, true, gitBackend(t))
	for name, wrong := range map[string]session.Workspace{
		"repository": {RepoURL: server.url + "/nope.git"},
		"setup":      {RepoURL: server.url + "/private.git", Setup: "touch /overwinter/left; exit 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := clones(t, a, server.url)
			patch := func(ws session.Workspace) {
				_, err := b.db.SessionPatch(b.ctx, b.id, session.Patch{Workspace: &ws})
				require.NoError(t, err)
			}
			patch(wrong)
			_, err := b.beginCreate(t).wait(t)
			requireType(t, activities.Refused, err)
			b.transit(t, session.EventFail)
			patch(session.Workspace{RepoURL: server.url + "/private.git", Setup: "cp hello set-up"})
			b.transit(t, session.EventRecover)
			ready, err := b.restore(2)
			require.NoError(t, err)
			require.EqualValues(t, 2, ready.Generation)
			require.Equal(t, "hello\nfresh\n", b.shell(t, ready.SandboxID, "cat /workspace/set-up; [ -e /overwinter/left ] || echo fresh"))
		})
	}
}

// gitRoot is the directory with the repositories of a gitBackend.
func gitRoot(t *testing.T, backend http.Handler) string {
	t.Helper()
	handler, ok := backend.(*cgi.Handler)
	require.True(t, ok)
	root, ok := strings.CutPrefix(handler.Env[0], "GIT_PROJECT_ROOT=")
	require.True(t, ok)
	return root
}
