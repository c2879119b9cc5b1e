package activities

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

// TestCredentialsAreSentOnlyToTheirHost clones from a server that sends git to another one, which asks for a password.
func TestCredentialsAreSentOnlyToTheirHost(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string][]string{} // the passwords that each server received
	server := func(name string, serve http.HandlerFunc) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, password, ok := r.BasicAuth()
			mu.Lock()
			asked[name] = append(asked[name], password)
			mu.Unlock()
			if !ok && name == "thief" {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			serve(w, r)
		}))
		t.Cleanup(s.Close)
		return s
	}
	thief := server("thief", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	home := server("home", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL+r.URL.RequestURI(), http.StatusFound)
	})
	u, err := url.Parse(home.URL)
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "sh", "-c", cloneScript, "overwinter", t.TempDir(), t.TempDir(), home.URL+"/private.git", "", u.Scheme, u.Host)
	command.Stdin = strings.NewReader("robot\nhunter2-password\n")
	command.Env = append(os.Environ(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "http_proxy=", "no_proxy=127.0.0.1")
	output, err := command.CombinedOutput()
	require.Error(t, err, "%s", output)
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, asked["home"], "%s", output)
	require.NotEmpty(t, asked["thief"], "%s", output)
	require.NotContains(t, asked["thief"], "hunter2-password", "%s", output)
}

type oneSecret struct{ name, value string }

func (s oneSecret) Secrets(_ context.Context, names []string) (map[string]secret.Stored, error) {
	if !slices.Contains(names, s.name) {
		return nil, nil
	}
	return map[string]secret.Stored{s.name: {Value: secret.NewValue(s.value)}}, nil
}

func TestCredentialsAreSentOverHTTPSOnly(t *testing.T) {
	t.Parallel()
	for address, sent := range map[string]bool{
		"https://git.example.com/a": true, "https://GIT.example.com/a": true, "http://git.example.com/a": false,
		"http://127.0.0.1:8080/a": true, "http://localhost/a": true, "http://[::1]:80/a": true, "http://127.0.0.1.example.com/a": false,
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		g := &sandboxes{Config: &Config{Secrets: oneSecret{secret.GitName(strings.ToLower(u.Host)), "robot:password"}}}
		credentials, err := g.credentials(t.Context(), u)
		require.NoError(t, err)
		require.Equal(t, sent, credentials.Reveal() != "", address)
	}
}
