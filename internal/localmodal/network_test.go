package localmodal_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// serveHTTP answers every request on its port with its X-Verified-User-Data.
const serveHTTP = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("hello " + self.headers.get("X-Verified-User-Data", "-")).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`

// webServer runs serveHTTP on a port of the sandbox, if it has its own network.
func (b *bundle) webServer() (*modal.Sandbox, int) {
	b.t.Helper()
	port, blocked := 8080, true
	if b.lacks(box.BlockedNetwork) {
		port, blocked = porttest.Free(b.t), false
	}
	probe, err := modal.NewTCPProbe(port, nil)
	require.NoError(b.t, err)
	sb := b.create(&modal.SandboxCreateParams{
		Command: []string{"python3", "-c", serveHTTP, strconv.Itoa(port)}, BlockNetwork: blocked,
		UnencryptedPorts: []int{port}, ReadinessProbe: probe,
	})
	require.NoError(b.t, sb.WaitUntilReady(b.ctx, waitLimit, nil))
	return sb, port
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

func TestPortsAreReachable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb, inside := b.webServer()

	tunnels, err := sb.Tunnels(b.ctx, waitLimit, nil)
	require.NoError(t, err)
	host, port, err := tunnels[inside].TCPSocket()
	require.NoError(t, err)
	address := net.JoinHostPort(host, strconv.Itoa(port))
	code, body := get(t, "http://"+address, "")
	require.Equal(t, "200 hello -", fmt.Sprint(code, " ", body))

	c, err := sb.CreateConnectToken(b.ctx, &modal.SandboxCreateConnectTokenParams{Port: inside, UserMetadata: "me"})
	require.NoError(t, err)
	code, body = get(t, c.URL, c.Token)
	require.Equal(t, "200 hello me", fmt.Sprint(code, " ", body))
	code, _ = get(t, c.URL, "wrong")
	require.Equal(t, http.StatusUnauthorized, code)

	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	b.terminate(sb)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "an open connection ends with the sandbox")
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { // the inner listener ends first
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close() // only the connection itself matters
		}
		return err != nil
	}, waitLimit, 10*time.Millisecond)
}

func TestExecProbe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	probe, err := modal.NewExecProbe([]string{"test", "-e", "/root/ready"}, nil)
	require.NoError(t, err)
	sb := b.create(&modal.SandboxCreateParams{
		Command: []string{"sh", "-c", "sleep 0.1; touch /root/ready; sleep 60"}, ReadinessProbe: probe,
	})
	require.NoError(t, sb.WaitUntilReady(b.ctx, waitLimit, nil))
	require.Zero(t, b.exec(sb, nil, "", "test", "-e", "/root/ready").code)
}
