package activities_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

// hostPorts are the ports of this machine that the sandboxes of these tests can reach.
const (
	hostPorts     = "20000-20999"
	firstHostPort = 20000
)

// sharesNetwork reports whether sandboxes here share the machine's network, so that these tests do
// not apply.
func sharesNetwork(t *testing.T) bool {
	t.Helper()
	for _, lack := range modal.Lacks() {
		if lack.Ability == box.OwnNetwork {
			t.Logf("sandboxes share the network, as declared: %s", lack)
			return true
		}
	}
	return false
}

// listenOnHostPort listens on this machine's loopback interface, on a port that sandboxes reach.
func listenOnHostPort(t *testing.T) net.Listener {
	t.Helper()
	for port := firstHostPort; ; port++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return listener
		}
		require.Less(t, port, firstHostPort+1000, "no port is free: %v", err)
	}
}

// serveOnHostPort serves on such a port.
func serveOnHostPort(t *testing.T, body string) (url string) {
	t.Helper()
	listener := listenOnHostPort(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, body)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends when it is closed
	}()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		<-done
	})
	return "http://" + listener.Addr().String()
}

func TestLoopbackBaseURLIsReachableFromSandbox(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	url := serveOnHostPort(t, "a model here")
	b := setup(t)
	config := `{"provider": {"p": {"options": {"baseURL": "` + url + `"}}}, "mcp": {"url": "` + url + `"}, "n": 12345678901234567890}`
	b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{Environment: map[string]string{
		"MODEL_BASE_URL": url + "/v1", "OTHER_URL": url, "AGENT_CONFIG_CONTENT": config, "PLAIN_CONFIG_CONTENT": `{ "baseURL": "https://api.example.com" }`,
	}}})
	ready := b.create(t)
	run := b.claim(t, ready, "$ echo at $MODEL_BASE_URL and $OTHER_URL; curl -sS --max-time 20 $MODEL_BASE_URL; echo $AGENT_CONFIG_CONTENT; echo $PLAIN_CONFIG_CONTENT")
	_, err := b.turn(run)
	require.NoError(t, err)
	printed := b.printed(t, run.RunID)
	require.Contains(t, printed, "at http://host.overwinter.internal:")
	require.Contains(t, printed, "and http://127.0.0.1:", "a URL of something else may be of a server in the sandbox")
	require.Contains(t, printed, "a model here")
	printed = strings.ReplaceAll(printed, `\"`, `"`)
	require.Regexp(t, `"mcp":\{"url":"http://127\.0\.0\.1:\d+"\},"n":12345678901234567890,"provider":\{"p":\{"options":\{"baseURL":"http://host\.overwinter\.internal:\d+"\}\}\}`, printed)
	require.Contains(t, printed, `{ "baseURL": "https://api.example.com" }`, "byte by byte")
}

func TestBaseURLOnClosedPortFailsTurnImmediately(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	for _, variable := range [][2]string{
		{"MODEL_BASE_URL", "http://127.0.0.1:19999"},
		{"MODEL_BASE_URL", "http://localhost:19999/v1"},
		{"MODEL_BASE_URL", "http://[::1]:19999"},
		{"MODEL_CONFIG_CONTENT", `{"provider": [{"base_url": "http://localhost:19999/v1"}]}`},
	} {
		b := setup(t)
		b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{Environment: map[string]string{variable[0]: variable[1]}}})
		_, err := b.turn(b.claim(t, b.create(t), "$ true"))
		requireType(t, activities.Refused, err)
		require.ErrorContains(t, err, variable[0])
		require.ErrorContains(t, err, "--sandbox-host-ports 19999")
	}
}

func TestRepositoryOnClosedPortFailsSetupImmediately(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	b := setup(t)
	b.sql(t, `UPDATE sessions SET workspace = '{"repoUrl": "http://127.0.0.1:19999/repo.git"}' WHERE id = $1`, b.id)
	_, err := b.beginCreate(t).wait(t)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "repoUrl")
	require.ErrorContains(t, err, "--sandbox-host-ports 19999")
}
