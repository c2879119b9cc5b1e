package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/peeruser"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	require.JSONEq(t, `{"conversations":[{"id":"main","blocks":[]}]}`, string(b.do("GET", "/api/sessions/"+id+"/blocks", "").body))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b.store.With(id, func(r *apitest.Row) {
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{
			{ID: "main", Blocks: []conversation.Block{
				{ID: "1", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at, Content: "hi"},
				{ID: "2", Type: conversation.ToolUse, Status: conversation.Success, CreatedAt: at, Name: "shell", Input: json.RawMessage(`{"cmd":"ls"}`), ToolUseID: "t"},
				{ID: "3", Type: conversation.ToolResult, Status: conversation.Failed, CreatedAt: at, ToolUseID: "t", Output: json.RawMessage(`"no"`), IsError: true},
				{ID: "4", Type: conversation.Subagent, Status: conversation.Running, CreatedAt: at, SubagentID: "s", Name: "helper"},
			}},
			{ID: "s"},
		}}
	})
	var got conversation.Conversation
	b.do("GET", "/api/sessions/"+id+"/blocks", "").into(&got)
	require.Len(t, got.Threads, 2)
	require.Len(t, got.Threads[0].Blocks, 4)
	require.NotNil(t, got.Threads[1].Blocks)

	var page struct {
		conversation.Conversation
		NextCursor string `json:"nextCursor"`
	}
	b.do("GET", "/api/sessions/"+id+"/blocks?limit=3", "").into(&page)
	require.Len(t, page.Threads[0].Blocks, 3)
	require.NotEmpty(t, page.NextCursor)
	b.do("GET", "/api/sessions/"+id+"/blocks?limit=3&cursor="+page.NextCursor, "").into(&got)
	require.Len(t, got.Threads[0].Blocks, 1)
	for _, wrong := range []string{"limit=0", "limit=1001", "limit=x", "cursor=wrong"} {
		b.do("GET", "/api/sessions/"+id+"/blocks?"+wrong, "").problem(http.StatusBadRequest, "invalid_request")
	}
}

func TestTranscript(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	path := "/api/sessions/" + id + "/transcript"
	require.JSONEq(t, `{"files":[]}`, string(b.do("GET", path, "").body))
	b.store.With(id, func(r *apitest.Row) {
		r.Transcripts = []transcript.File{
			{Path: "/home/a/t.jsonl", Version: 2, Data: []byte("{\"a\":1}\n")},
			{Path: "/home/a/bin", Data: []byte{0xff, 0}},
		}
	})
	require.JSONEq(t, `{"files":[
		{"path":"/home/a/t.jsonl","version":2,"size":8,"encoding":"utf-8","content":"{\"a\":1}\n"},
		{"path":"/home/a/bin","version":0,"size":2,"encoding":"base64","content":"/wA="}]}`, string(b.do("GET", path, "").body))
	one := b.do("GET", path+"?path=/home/a/t.jsonl", "")
	require.Equal(t, "application/x-ndjson", one.header.Get("Content-Type"))
	require.Equal(t, "{\"a\":1}\n", string(one.body))
	require.Equal(t, []byte{0xff, 0}, b.do("GET", path+"?path=/home/a/bin", "").body)
	b.do("GET", path+"?path=/etc/passwd", "").problem(http.StatusNotFound, "not_found")

	// Some characters are split between pieces.
	text := strings.Repeat("größer als ein Stück — 雪 \U0001F980 <&>\n", 4000)
	b.store.With(id, func(r *apitest.Row) {
		r.Transcripts = []transcript.File{{Path: "/t", Data: []byte(text)}, {Path: "/cut", Data: []byte("abc\xe9\x9b")}}
	})
	var all struct {
		Files []struct {
			Size              int
			Encoding, Content string
		}
	}
	require.NoError(t, json.Unmarshal(b.do("GET", path, "").body, &all))
	require.Equal(t, text, all.Files[0].Content)
	require.Equal(t, len(text), all.Files[0].Size)
	require.Equal(t, "base64", all.Files[1].Encoding)
	require.Equal(t, text, string(b.do("GET", path+"?path=/t", "").body))
}

func TestStateQueriesWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.StateTimeout = 50 * time.Millisecond })
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/state"
	view, err := json.Marshal(contract.StateView{SessionID: id, Status: session.Running, Doing: "waiting for work"})
	require.NoError(t, err)
	b.temp.Set(func(o *apitest.Signaler) { o.View = string(view) })
	a := b.do("GET", path, "")
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, string(view), string(a.body))

	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.NoSession, "no workflow is open") })
	b.do("GET", path, "").problem(http.StatusNotFound, "session_not_found")
	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.Unavailable, "no worker") })
	require.NotEmpty(t, func() string {
		a := b.do("GET", path, "")
		a.problem(503, "unavailable")
		return a.header.Get("Retry-After")
	}())
	b.temp.Set(func(o *apitest.Signaler) { o.Hang = true })
	b.do("GET", path, "").problem(http.StatusServiceUnavailable, "unavailable")
	b.do("GET", "/api/sessions/x/state", "").problem(http.StatusBadRequest, "invalid_request")
}

func TestReadsWorkWithoutWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	b.store.Text(id, "x")
	b.temp.Set(func(o *apitest.Signaler) { o.Err = errors.New("connection refused") })
	for _, path := range []string{"", "/prompts", "/blocks", "/transcript"} {
		require.Equal(t, http.StatusOK, b.do("GET", "/api/sessions/"+id+path, "").status, path)
	}
	require.Equal(t, []string{"1 text_delta", `caught_up {"seq":1}`}, b.stream("/api/sessions/"+id+"/events").brief(2))
	require.Equal(t, http.StatusOK, b.do("GET", "/api/sessions", "").status)
	require.Equal(t, http.StatusOK, b.do("GET", "/api/agents", "").status)
	require.Empty(t, b.temp.TakeCalls())
}

func TestAgents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.JSONEq(t, `{"items":[
		{"name":"demo","title":"Demo","summary":"A demo.","models":[],"capabilities":["revert"],"secrets":[]},
		{"name":"other","title":"","summary":"","models":["m1"],"capabilities":[],"secrets":[]}],"nextCursor":null}`,
		string(b.do("GET", "/api/agents", "").body))
}

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.JSONEq(t, `{"status":"ok","version":"v1"}`, string(b.do("GET", "/healthz", "").body))
	a := b.do("GET", "/readyz", "")
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"status":"ready","checks":{"postgres":"ok","temporal":"ok","sandbox":{"driver":"mem","isolation":"none","breakers":[]}}}`, string(a.body))

	b.store.Fail("Ready", errors.New("password=hunter2"))
	a = b.do("GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.JSONEq(t, `{"status":"unready","checks":{"postgres":"does not answer","temporal":"ok","sandbox":{"driver":"mem","isolation":"none","breakers":[]}}}`, string(a.body))
	require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "").status)

	b.store.Fail("Ready", failure.Errorf(failure.Unavailable, "cannot be written to: its disk is full"))
	a = b.do("GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, string(a.body), `"postgres":"cannot be written to: its disk is full"`)

	b.store.Fail("Ready", nil)
	b.temp.Set(func(o *apitest.Signaler) { o.Hang = true })
	a = b.do("GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, string(a.body), `"temporal":"does not answer"`)
}

// If one check used up the time of the others, several faults would be reported instead of one.
func TestReadinessChecksRunInParallel(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) {
		c.Sandbox = func(ctx context.Context) api.SandboxInfo {
			<-ctx.Done()
			return api.SandboxInfo{Driver: "unknown", Isolation: "unknown", Breakers: []api.OpenBreaker{}}
		}
	})
	a := b.do("GET", "/readyz", "")
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"x"}`)
	b.do("GET", "/no/such/path/"+id, "")
	b.do("BREW", "/api/sessions", "")
	b.stream("/api/sessions/" + id + "/events").brief(1)
	text := string(b.do("GET", "/metrics", "").body)
	for _, want := range []string{
		"overwinter_api_sessions_created_total 1",
		"overwinter_api_prompts_accepted_total 1",
		"overwinter_api_streams_open 1",
		`overwinter_api_requests_total{method="POST",route="/api/sessions/:id/prompts",status="202"} 1`,
		`overwinter_api_requests_total{method="other",route="other",status="404"} 1`,
		`overwinter_api_requests_total{method="other",route="other",status="405"} 1`,
		`overwinter_api_request_duration_seconds_count{method="POST",route="/api/sessions"} 1`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, id, "no label per session")
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for _, path := range []string{"/", "/api", "/api/", "/api/nothing", "/api/sessions/", "/api/sessions/" + id + "/dance", "/api/sessions/" + id + "/prompts/p/x"} {
		b.do("GET", path, "").problem(http.StatusNotFound, "not_found")
	}
	for path, methods := range map[string][]string{
		"/api/sessions":                       {"GET", "POST"},
		"/api/sessions/" + id:                 {"GET", "PATCH", "DELETE"},
		"/api/sessions/" + id + "/wake":       {"POST"},
		"/api/sessions/" + id + "/prompts":    {"GET", "POST"},
		"/api/sessions/" + id + "/messages/p": {"GET", "PUT", "DELETE"},
		"/healthz":                            {"GET"},
	} {
		a := b.do("TRACE", path, "")
		a.problem(http.StatusMethodNotAllowed, "method_not_allowed")
		for _, method := range methods {
			require.Contains(t, a.header.Get("Allow"), method, path)
		}
	}
}

func TestAPIKeyIsRequired(t *testing.T) {
	t.Parallel()
	b := setup(t, api.WithoutKeyDelay, func(c *api.Config) { c.Key = secret.NewValue("let-me-in-please-or-not") })
	id := b.store.Put(session.Running)
	closed := []string{"/api/sessions", "/api/sessions/" + id, "/api/sessions/" + id + "/events", "/api/agents", "/metrics", "/api/nothing"}
	for _, path := range closed {
		for _, header := range []string{"", "let-me-in-please-or-not", "Bearer", "Bearer ", "Bearer wrong", "Bearer let-me-in-please-or-no", "Bearer let-me-in-please-or-not2", "Basic let-me-in-please-or-not", "Bearer  let-me-in-please-or-not"} {
			a := b.do("GET", path, "", "Authorization", header)
			p := a.problem(http.StatusUnauthorized, "unauthorized")
			require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
			require.NotContains(t, p.Detail, "let-me-in-please-or-not")
		}
	}
	b.do("POST", "/api/sessions", `{"agent":"demo"}`).problem(http.StatusUnauthorized, "unauthorized")
	require.Equal(t, 1, b.store.Count())
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/openapi.yaml", "/asyncapi.yaml"} {
		require.Equal(t, http.StatusOK, b.do("GET", path, "").status, path)
	}
	require.Equal(t, http.StatusOK, b.do("GET", "/api/sessions", "", "Authorization", "Bearer let-me-in-please-or-not").status)
	require.Equal(t, http.StatusOK, b.do("GET", "/metrics", "", "Authorization", "bearer let-me-in-please-or-not").status)
	require.NotContains(t, b.logs.String(), "let-me-in-please-or-not")
}

// Every response forbids browsers and caches to store or embed it, including data, problems,
// streams and unknown paths.
func TestEveryAnswerHasSecurityHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Terminated)
	for _, path := range []string{
		"/api/sessions", "/api/sessions/" + id, "/api/sessions/" + id + "/blocks", "/api/sessions/" + id + "/events",
		"/api/sessions/ses_x", "/api/nothing", "/healthz", "/readyz", "/metrics", "/openapi.json",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, http.NoBody)
		require.NoError(t, err)
		answer, err := b.client.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		header := answer.Header
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-store", header.Get("Cache-Control"), path)
		require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'", path)
		require.Equal(t, "DENY", header.Get("X-Frame-Options"), path)
		require.Equal(t, "no-referrer", header.Get("Referrer-Policy"), path)
		require.Equal(t, "same-origin", header.Get("Cross-Origin-Resource-Policy"), path)
	}
	require.Equal(t, "nosniff", b.do("GET", "/api/sessions", "", "Host", "evil.example").header.Get("X-Content-Type-Options"))
}

func TestCrossOriginPagesMayNotSendCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Origin", "https://evil.example", "Content-Type", "text/plain").problem(http.StatusForbidden, "forbidden")
	b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Sec-Fetch-Site", "cross-site").problem(http.StatusForbidden, "forbidden")
	require.Zero(t, b.store.Count())
	require.Equal(t, http.StatusCreated, b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Origin", b.url).status)
}

// For a browser, a page whose name resolves to loopback has the same origin; only the Host differs.
func TestServerWithoutKeyAnswersToThisMachineOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, host := range []string{"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1:8080", "localhost.evil.example"} {
		b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Host", host, "Origin", "http://"+host).problem(http.StatusForbidden, "forbidden")
		b.do("GET", "/api/sessions", "", "Host", host).problem(http.StatusForbidden, "forbidden")
	}
	require.Zero(t, b.store.Count())
	for _, host := range []string{"localhost:8080", "LOCALHOST", "127.0.0.1", "127.9.9.9:1", "[::1]:8080", "[::1]"} {
		require.Equal(t, http.StatusOK, b.do("GET", "/api/sessions", "", "Host", host).status, host)
	}
	keyed := setup(t, func(c *api.Config) { c.Key = secret.NewValue("let-me-in-please-or-not") })
	require.Equal(t, http.StatusOK, keyed.do("GET", "/api/sessions", "", "Host", "api.example", "Authorization", "Bearer let-me-in-please-or-not").status)
}

// Every user of the machine can reach a loopback address.
func TestServerWithoutKeyServesItsUsersOnly(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	foreign := func(local, remote net.Addr) error {
		asked.Add(1)
		if local.(*net.TCPAddr).Port == 0 || remote.(*net.TCPAddr).Port == 0 {
			return nil // not the addresses of a connection
		}
		return &peeruser.ForeignError{ID: 1001}
	}
	b := setup(t, func(c *api.Config) { c.Callers = foreign })
	id := b.store.Put(session.Running)
	for _, path := range []string{"/api/sessions", "/api/sessions/" + id, "/api/sessions/" + id + "/events", "/api/secrets", "/metrics", "/api/nothing"} {
		b.do("GET", path, "").problem(http.StatusForbidden, "forbidden")
	}
	b.do("POST", "/api/sessions", `{"agent":"demo"}`).problem(http.StatusForbidden, "forbidden")
	require.Equal(t, 1, b.store.Count())
	require.Equal(t, http.StatusOK, b.do("GET", "/readyz", "").status)

	before := asked.Load()
	keyed := setup(t, func(c *api.Config) { c.Callers, c.Key = foreign, secret.NewValue("let-me-in-please-or-not") })
	require.Equal(t, http.StatusOK, keyed.do("GET", "/api/sessions", "", "Authorization", "Bearer let-me-in-please-or-not").status)
	require.Equal(t, before, asked.Load(), "a key says who may call")

	own, err := peeruser.Parse("")
	require.NoError(t, err)
	served := setup(t, func(c *api.Config) { c.Callers = own.Check })
	require.Equal(t, http.StatusOK, served.do("GET", "/api/sessions", "").status)
}

func TestRequestsHaveIdAndOneLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	require.Equal(t, "mine-42", b.do("GET", "/api/sessions/"+id+"?q=secret", "", "X-Request-Id", "mine-42").header.Get("X-Request-Id"))
	made := b.do("GET", "/api/sessions/"+id, "", "X-Request-Id", "no good").header.Get("X-Request-Id")
	require.Regexp(t, `^[0-9a-f-]{36}$`, made)
	var lines []map[string]any
	eventually(t, "both lines", func() bool {
		lines = nil
		for line := range strings.Lines(b.logs.String()) {
			var l map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			if l["msg"] == "request" {
				lines = append(lines, l)
			}
		}
		return len(lines) == 2
	})
	require.Equal(t, "mine-42", lines[0]["request_id"])
	require.Equal(t, id, lines[0]["session_id"])
	require.Equal(t, "GET", lines[0]["method"])
	require.Equal(t, "/api/sessions/:id", lines[0]["route"])
	require.EqualValues(t, 400, lines[0]["status"], "of an unknown parameter")
	require.Equal(t, "127.0.0.1", lines[0]["remote_ip"])
	require.Contains(t, lines[0], "duration_ms")
	require.NotContains(t, b.logs.String(), "secret")
	require.Equal(t, "DEBUG", lines[1]["level"], "clients poll")
	require.Equal(t, "INFO", lines[0]["level"], "of an error")
}

func TestForwardedAddressIsIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do("GET", "/api/agents", "", "X-Forwarded-For", "203.0.113.9", "X-Real-Ip", "203.0.113.9")
	eventually(t, "the line", func() bool { return strings.Contains(b.logs.String(), `"remote_ip":"127.0.0.1"`) })
	require.NotContains(t, b.logs.String(), "203.0.113.9")
}

func TestPanicIsInternalError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	b.temp.Set(func(o *apitest.Signaler) { o.Panic = "a secret went wrong" })
	a := b.do("GET", "/api/sessions/"+id+"/state", "")
	a.problem(http.StatusInternalServerError, "internal")
	require.NotContains(t, string(a.body), "secret")
	require.Contains(t, b.logs.String(), "a secret went wrong")
	require.Contains(t, b.logs.String(), "reading.go", "with its stack")
	require.Equal(t, http.StatusAccepted, b.do("POST", "/api/sessions/"+id+"/wake", "").status, "its signal panics, the command is stored")
	require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "").status, "the server lives on")
}

func TestHangingDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.RequestTimeout = 50 * time.Millisecond })
	id := b.store.Put(session.Running)
	b.store.Block()
	b.do("GET", "/api/sessions/"+id, "").problem(http.StatusServiceUnavailable, "unavailable")
}

func TestStreamThatIsOpenedDuringShutdownIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	release := b.store.Block()
	defer close(release)
	answered := make(chan answer, 1)
	go func() { answered <- b.do("GET", "/api/sessions/"+id+"/events", "") }()
	eventually(t, "the stream is being opened", func() bool { return b.store.Calls("SessionGet") == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	(<-answered).problem(http.StatusServiceUnavailable, "unavailable")
	require.NoError(t, <-stopped)
}

func TestShutdownFinishesRequestsInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	release := b.store.Block()
	status := make(chan int, 1)
	go func() {
		resp, err := b.client.Get(b.url + "/api/sessions/" + id)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	stopped := make(chan error, 1)
	eventually(t, "the request is in progress", func() bool {
		return strings.Contains(string(b.do("GET", "/healthz", "").body), "ok")
	})
	go func() { stopped <- b.stop() }()
	eventually(t, "no new connections", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	require.Contains(t, []int{http.StatusOK, 0}, <-status)
	require.NoError(t, <-stopped)
}

func TestNewNamesMissingConfiguration(t *testing.T) {
	t.Parallel()
	store := apitest.NewStore()
	full := api.Config{Store: store, Signaler: &apitest.Signaler{}, Events: store, Agents: agents{}, WithoutKey: true}
	for field, without := range map[string]func(*api.Config){
		"Store":    func(c *api.Config) { c.Store = nil },
		"Signaler": func(c *api.Config) { c.Signaler = nil },
		"Events":   func(c *api.Config) { c.Events = nil },
		"Agents":   func(c *api.Config) { c.Agents = nil },
	} {
		cfg := full
		without(&cfg)
		_, err := api.New(cfg)
		require.ErrorContains(t, err, field)
	}
	s, err := api.New(full)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	require.ErrorContains(t, s.Run(t.Context(), ln), "serve")
}

func TestDocumentAndRoutesAgree(t *testing.T) {
	t.Parallel()
	doc, _ := specification()
	require.NoError(t, doc.Validate(context.Background()))
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
			if method == http.MethodGet && item.Head == nil { // documented once for all routes
				documented = append(documented, "HEAD "+path)
			}
		}
	}
	store := apitest.NewStore()
	s, err := api.New(api.Config{Store: store, Signaler: &apitest.Signaler{}, Events: store, Agents: agents{}, WithoutKey: true})
	require.NoError(t, err)
	served := api.RoutesOf(s)
	for i, r := range served {
		r = strings.Replace(r, "/files/*", "/files/:path", 1) // the one parameter with slashes
		served[i] = regexp.MustCompile(`:(\w+)`).ReplaceAllString(r, "{$1}")
	}
	slices.Sort(documented)
	slices.Sort(served)
	require.Equal(t, documented, served)
}

func TestDocumentStatesLimitsOfCode(t *testing.T) {
	t.Parallel()
	doc, _ := specification()
	schemas := doc.Components.Schemas
	require.EqualValues(t, session.MaxTitleRunes, *schemas["Title"].Value.MaxLength)
	require.EqualValues(t, profile.MaxModelRunes, *schemas["Options"].Value.Properties["model"].Value.MaxLength)
	require.InDelta(t, 200, *doc.Components.Parameters["Limit"].Value.Schema.Value.Max, 0)
	require.Contains(t, schemas["Metadata"].Value.Description, "16 KiB")
	require.Equal(t, 16<<10, session.MaxMetadataBytes)
	require.Contains(t, schemas["Content"].Value.Description, "256 KiB")
	require.Equal(t, 256<<10, session.MaxPromptBytes)
	require.Contains(t, schemas["IdleTimeout"].Value.Description, "1s to 168h")
	require.Equal(t, []time.Duration{time.Second, 168 * time.Hour}, []time.Duration{session.MinIdleTimeout, session.MaxIdleTimeout})
	require.Contains(t, doc.Paths.Value("/api/sessions/{id}/prompts").Post.Description, "1000")
	require.Equal(t, 1000, session.MaxQueued)
	var states []any
	for _, s := range session.States {
		states = append(states, string(s))
	}
	require.ElementsMatch(t, states, schemas["SessionStatus"].Value.Enum)
	var codes []any
	for _, code := range api.Codes() {
		codes = append(codes, string(code))
	}
	require.ElementsMatch(t, codes, schemas["Problem"].Value.Properties["code"].Value.Enum)
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var doc struct {
		OpenAPI string
		Paths   map[string]any
	}
	b.do("GET", "/openapi.json", "").into(&doc)
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.Contains(t, doc.Paths, "/api/sessions/{id}/messages/{promptId}")
	require.Contains(t, string(b.do("GET", "/openapi.yaml", "").body), "openapi: 3.0.3")
}

func TestHeadMatchesGetWithoutBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	ask := func(method, path string) (status int, header http.Header, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, b.url+path, http.NoBody)
		require.NoError(t, err)
		answer, err := b.client.Do(request)
		require.NoError(t, err)
		var content []byte
		if method == http.MethodHead || !strings.HasSuffix(path, "/events") {
			content, err = io.ReadAll(answer.Body) // a stream requested with HEAD ends
			require.NoError(t, err)
		}
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, answer.Header, string(content)
	}
	for _, path := range []string{
		"/healthz", "/readyz", "/metrics", "/openapi.json", "/openapi.yaml", "/api/agents", "/api/sessions", "/api/sessions/" + id,
		"/api/sessions/" + id + "/blocks", "/api/sessions/" + id + "/prompts", "/api/sessions/" + id + "/events",
		"/api/sessions/" + id + "/files/none", "/api/sessions/ses_x", "/api/nothing",
	} {
		getStatus, get, _ := ask(http.MethodGet, path)
		headStatus, head, body := ask(http.MethodHead, path)
		require.Empty(t, body, path)
		require.Equal(t, getStatus, headStatus, path)
		for _, name := range []string{"Content-Type", "Cache-Control", "X-Content-Type-Options", "Content-Security-Policy", "Cross-Origin-Resource-Policy"} {
			require.Equal(t, get.Get(name), head.Get(name), "%s: %s", path, name)
		}
	}
	refused, _, _ := ask(http.MethodHead, "/api/sessions/"+id+"/wake")
	require.Equal(t, http.StatusMethodNotAllowed, refused, "GET is not allowed there either")
}

// The request target has every form that reaches a handler.
func TestServerWideOptionsRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := strings.TrimPrefix(b.url, "http://")
	for target, want := range map[string]int{
		"OPTIONS * HTTP/1.1\r\nHost: localhost":                            http.StatusNotFound,
		"OPTIONS * HTTP/1.1\r\nHost: evil.example":                         http.StatusForbidden,
		"GET http://evil.example/api/sessions HTTP/1.1\r\nHost: localhost": http.StatusForbidden,
		"GET /api/sessions HTTP/1.0":                                       http.StatusForbidden,
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443":      http.StatusForbidden,
		"GET /api/sessions HTTP/1.1\r\nHost: [::1]:8080":                   http.StatusOK,
		"GET /api/sessions HTTP/1.1\r\nHost: [::ffff:127.0.0.1]":           http.StatusOK,
		"GET /api/sessions HTTP/1.1\r\nHost: localhost.evil.example":       http.StatusForbidden,
		"GET /api/sessions HTTP/1.1\r\nHost: 0.0.0.0":                      http.StatusForbidden,
		"GET /api/sessions HTTP/1.1\r\nHost: 2130706433":                   http.StatusForbidden,
	} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = conn.Write([]byte(target + "\r\nConnection: close\r\n\r\n"))
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, target)
		require.NoError(t, answer.Body.Close())
		require.NoError(t, conn.Close())
		require.Equal(t, want, answer.StatusCode, target)
		require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"), target)
		require.NotEmpty(t, answer.Header.Get("X-Request-Id"), target)
	}
}
