package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// waitLimit bounds every wait of a test. Waits are short on an idle machine, but the tests of all
// packages share the machine.
const waitLimit = 2 * time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

// harness is one server on a separate port, over fakes.
type harness struct {
	t       testing.TB
	store   *apitest.Store
	temp    *apitest.Signaler
	url     string
	logs    *syncBuffer
	stop    func() error // stops the server and returns the error of Run
	client  *http.Client
	headers http.Header
}

type agents struct{}

func (agents) Names() []string { return []string{"demo", "other"} }
func (agents) Describe() []agent.Description {
	return []agent.Description{{Name: "demo", Title: "Demo", Summary: "A demo.", Capabilities: []string{"revert"}}, {Name: "other", Models: []string{"m1"}}}
}

// Get returns the real adapter, because archives may contain the memory of its agent.
func (agents) Get(name string) (agent.Adapter, error) { return agent.NewRegistry(demo.New()).Get(name) }

func setup(t testing.TB, change ...func(*api.Config)) *harness {
	t.Helper()
	store := apitest.NewStore()
	b := &harness{t: t, store: store, temp: &apitest.Signaler{}, logs: &syncBuffer{}, headers: http.Header{}}
	cfg := api.Config{
		Store: store, Signaler: b.temp, Events: store, Agents: agents{},
		Sandbox: func(context.Context) api.SandboxInfo {
			return api.SandboxInfo{Driver: "mem", Isolation: "none", Breakers: []api.OpenBreaker{}}
		},
		Logger:  slog.New(slog.NewJSONHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: "v1",
		// None of these timeouts may end work that only waits for a CPU, or add heartbeats to a
		// stream.
		SignalWait: waitLimit, SignalTimeout: waitLimit, StateTimeout: waitLimit, HistoryTimeout: waitLimit, RequestTimeout: waitLimit, WriteTimeout: waitLimit,
		ShutdownTimeout: waitLimit, Heartbeat: waitLimit, LongPoll: waitLimit,
	}
	api.WaitFor(&cfg, waitLimit)
	for _, f := range change {
		f(&cfg)
	}
	cfg.WithoutKey = cfg.Key.Empty()
	server, err := api.New(cfg)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	b.stop = sync.OnceValue(func() error { cancel(); return <-done })
	transport := &http.Transport{}
	b.client = &http.Client{Transport: transport, Timeout: waitLimit}
	b.url = "http://" + ln.Addr().String()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, b.stop())
	})
	return b
}

// answer is a response that was read completely and checked against the OpenAPI document.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// do sends a request with an unmodified body. An empty body is omitted.
func (b *harness) do(method, path, body string, headers ...string) answer {
	b.t.Helper()
	return b.doRaw(method, path, strings.NewReader(body), headers...)
}

func (b *harness) doRaw(method, path string, body io.Reader, headers ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	require.NoError(b.t, err)
	req.Header = b.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Host = req.Header.Get("Host") // the address of the server if it is empty
	resp, err := b.client.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	conforms(b.t, req, resp, data)
	return answer{t: b.t, status: resp.StatusCode, header: resp.Header, body: data}
}

// into reads the body.
func (a answer) into(v any) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal(a.body, v), "%s", a.body)
}

func (a answer) session() resource.SessionJSON {
	a.t.Helper()
	var s resource.SessionJSON
	a.into(&s)
	return s
}

type accepted struct {
	Prompt   resource.PromptJSON
	Position int64
}

func (a answer) accepted() accepted {
	a.t.Helper()
	var p accepted
	a.into(&p)
	return p
}

type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	Errors                    []struct{ Field, Message string }
}

// problem checks that the answer is an error of that status and code.
func (a answer) problem(status int, code string) problem {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s", a.body)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	var p problem
	a.into(&p)
	require.Equal(a.t, code, p.Code, "%s", a.body)
	require.Equal(a.t, status, p.Status)
	require.Equal(a.t, "about:blank", p.Type)
	require.Equal(a.t, http.StatusText(status), p.Title)
	require.NotEmpty(a.t, p.Detail)
	return p
}

var specification = sync.OnceValues(func() (*openapi3.T, routers.Router) {
	data, err := os.ReadFile("openapi.yaml")
	if err != nil {
		panic(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		panic(err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	return doc, router
})

// conforms checks a response against the OpenAPI document. A response to a path that is not in the
// document must be a problem with 404 or 405.
func conforms(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	_, router := specification()
	bare := req.Clone(req.Context())
	bare.URL.Host, bare.URL.Scheme, bare.Host = "", "", ""
	if before, _, ok := strings.Cut(bare.URL.Path, "/files/"); ok { // a parameter of the document has no slashes
		bare.URL.Path, bare.URL.RawPath = before+"/files/path", ""
	}
	route, params, err := router.FindRoute(bare)
	if err != nil || strings.HasSuffix(req.URL.Path, "/") { // the router ignores this
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnauthorized, http.StatusForbidden, http.StatusNoContent}, resp.StatusCode, "%s %s is not in the document", req.Method, req.URL)
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: bare, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	input.SetBodyBytes(body)
	require.NoError(t, openapi3filter.ValidateResponse(req.Context(), input), "%s %s: %d %s", req.Method, req.URL, resp.StatusCode, body)
}

// syncBuffer collects log lines from many goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// eventually waits until another goroutine has fulfilled a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, waitLimit, 5*time.Millisecond, what)
}
