package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/porttest"
	"github.com/overwinter-dev/overwinter/test/npmtest"
	"github.com/overwinter-dev/overwinter/test/web"
)

// followersWithin bounds each wait for all clients.
const followersWithin = 3 * time.Minute

// TestEveryClientFollowsSameSession makes a page with useChat, AG-UI's agent, two clients of
// Durable Streams, EventSource, two WebSockets of different protocols, curl, the Go client and the
// TypeScript client over both of its transports follow one session, while both apis, the worker and
// Postgres are killed, one in each turn. All of them must receive the same events, without a gap or
// a repeat. -minutes adds further rounds.
func TestEveryClientFollowsSameSession(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1)
	nodes := []string{r.api, r.addAPI(t)}
	var connections atomic.Int64
	balancer := newProxy(t, func() (net.Conn, error) {
		n := connections.Add(1)
		if conn, err := net.Dial("tcp", nodes[n%2]); err == nil {
			return conn, nil
		}
		return net.Dial("tcp", nodes[(n+1)%2])
	})
	id := r.create(t, object{})
	f := &followers{rig: r, id: id, url: "http://" + balancer.address + "/api/sessions/" + id, scripts: followerScripts(t)}
	f.start(t)

	reset := 0 // connections at once
	faults := []struct {
		name   string
		strike func()
	}{
		{"the first api", func() { kill([]int{r.child(t, "overwinter api")}) }},
		{"the worker", func() { kill(r.pids(partWorker)) }},
		{"the second api", func() { kill([]int{r.second.pid()}) }},
		{"Postgres", func() { r.killBackend(t) }},
		{"every connection", func() { reset = max(reset, balancer.reset()) }},
	}
	until := time.Now().Add(time.Duration(*stormMinutes * float64(time.Minute)))
	var want []string
	for n := 0; n < len(faults) || time.Now().Before(until); n++ {
		words := make([]string, 50)
		for i := range words {
			words[i] = fmt.Sprintf("turn%dword%d", n, i)
		}
		want = append(want, strings.Join(words, " "))
		f.say(t, "slow 60ms: "+want[n])
		for _, word := range []string{words[8], words[24]} { // twice in a turn
			f.answering(t, word)
			faults[n%len(faults)].strike()
		}
		f.answered(t, faults[n%len(faults)].name)
		r.waitReady(t)
	}
	f.compare(t, want)
	t.Logf("%d connections, %d of them reset at once", connections.Load(), reset)
	require.GreaterOrEqual(t, reset, len(f.logs), "the clients that always hold a connection have lost it")
}

// addAPI starts another api, and returns its address.
func (r *rig) addAPI(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.child(t, "overwinter", "api")))
	require.NoError(t, err)
	env := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	logs, err := os.Create(filepath.Join(r.dir, "logs", "api2.log"))
	require.NoError(t, err)
	t.Cleanup(func() { logs.Close() })
	path := program(t, "overwinter")
	r.second = supervise(t, func() *exec.Cmd {
		cmd := exec.Command(path, "api", "--address", address)
		cmd.Env = slices.Clone(env)
		cmd.Stdout, cmd.Stderr = logs, logs
		return cmd
	})
	eventually(t, followersWithin, "the second api is ready", func() error { return isReady("http://" + address + "/readyz") })
	return address
}

// killBackend kills a process of Postgres, which then ends all others and recovers.
func (r *rig) killBackend(t *testing.T) {
	t.Helper()
	var pid int
	eventually(t, followersWithin, "a backend can be killed", func() error {
		conn, err := pgx.Connect(t.Context(), r.postgres.url)
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		return conn.QueryRow(t.Context(),
			"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1").Scan(&pid)
	})
	kill([]int{pid})
}

// followerScripts has the scripts of the JavaScript clients, by the directory of the packages that
// they import.
func followerScripts(t *testing.T) map[string]string {
	t.Helper()
	dirs := map[string]string{}
	for _, name := range []string{"uistream", "durablestreams"} {
		from := name
		dir := t.TempDir()
		require.NoError(t, os.Symlink(npmtest.InstallFrom(t, from, name), filepath.Join(dir, "node_modules")))
		for _, pattern := range []string{"*.mjs", "*.tsx", "package.json"} {
			files, err := filepath.Glob(filepath.Join(from, pattern))
			require.NoError(t, err)
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644))
			}
		}
		dirs[name] = dir
	}
	dirs["web"] = web.Build(t, "../web").Dir
	return dirs
}

// followers are the clients of one session.
type followers struct {
	*rig
	id, url string
	scripts map[string]string // directories
	logs    []*followerLog
	sockets map[string]*followerLog
	page    *followerScript
	agui    *followerScript
	first   *followerLog // of the Go client
	ended   int          // turns
}

// followerLog is the ordered output of a client.
type followerLog struct {
	name string
	done chan struct{}

	mu    sync.Mutex
	lines []string
	err   error
}

func newFollowerLog(name string) *followerLog {
	return &followerLog{name: name, done: make(chan struct{})}
}

func (l *followerLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *followerLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *followerLog) all() ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines), l.err
}

// hasDelta reports whether a text delta of the log has a word. Prompts, titles and the user's
// blocks have it before the turn begins.
func (l *followerLog) hasDelta(word string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool {
		return strings.Contains(line, `"`+client.EventTextDelta+`"`) && strings.Contains(line, word)
	})
}

// followerScript is a client in a separate process. Its log has the lines that it prints.
type followerScript struct {
	*followerLog
	input  io.WriteCloser
	errors safeBuffer
}

func (f *followers) script(t *testing.T, name, dir string, env []string, args ...string) *followerScript {
	t.Helper()
	s := &followerScript{followerLog: newFollowerLog(name)}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.Stderr = f.scripts[dir], &s.errors
	cmd.Env = append(os.Environ(), env...)
	var err error
	s.input, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(s.done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			s.add(lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			s.fail(fmt.Errorf("%w: %s", err, s.errors.String()))
		}
	})
	t.Cleanup(reading.Wait)
	return s
}

// start starts all clients.
func (f *followers) start(t *testing.T) {
	t.Helper()
	types, err := json.Marshal([]string{
		client.EventStatus, client.EventPrompt, client.EventQueue, client.EventTurnStart, client.EventTurnEnd, client.EventBlockStart, client.EventTextDelta,
		client.EventBlockUpdate, client.EventBlockComplete, client.EventBlockRemoved, client.EventMetadataUpdate, client.EventTitle, client.EventSettings,
		client.EventError, client.EventQuestion, client.EventQuestionResolved, client.EventFile, client.EventSetup, client.EventNetwork,
		client.EventDeadline, client.EventCommand, client.MarkerCaughtUp, client.MarkerGap, client.MarkerEnd,
	})
	require.NoError(t, err)
	at := []string{"SESSION_URL=" + f.url}
	f.page = f.script(t, "useChat", "uistream", at, "following.mjs", "page")
	f.agui = f.script(t, "AG-UI", "uistream", at, "following.mjs", "agui")
	for _, s := range []*followerScript{
		f.script(t, "EventSource", "uistream", append(at, "EVENT_TYPES="+string(types)), "following.mjs", "eventsource"),
		f.script(t, "Durable Streams, SSE", "durablestreams", []string{"STREAM_URL=" + f.url + "/stream", "LIVE=sse"}, "follow.mjs"),
		f.script(t, "Durable Streams, long poll", "durablestreams", []string{"STREAM_URL=" + f.url + "/stream", "LIVE=long-poll"}, "follow.mjs"),
		f.script(t, "TypeScript, sse", "web", append(transportEnv("sse"), at...), "test/out/live/log.js"),
		f.script(t, "TypeScript, websocket", "web", append(transportEnv("websocket"), at...), "test/out/live/log.js"),
	} {
		f.logs = append(f.logs, s.followerLog)
	}
	f.first = newFollowerLog("Go")
	f.run(t, f.first, f.followInGo)
	f.run(t, newFollowerLog("curl"), f.poll)
	f.sockets = map[string]*followerLog{}
	for _, protocol := range []string{"", "overwinter.blocks.v1"} {
		l := newFollowerLog("WebSocket " + protocol)
		f.sockets[protocol] = l
		f.run(t, l, func(ctx context.Context, l *followerLog) error { return f.socket(ctx, protocol, l) })
	}
	f.logs = slices.DeleteFunc(f.logs, func(l *followerLog) bool { return strings.HasPrefix(l.name, "WebSocket") })
}

func (f *followers) run(t *testing.T, l *followerLog, follow func(context.Context, *followerLog) error) {
	t.Helper()
	f.logs = append(f.logs, l)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(l.done)
		if err := follow(t.Context(), l); err != nil {
			l.fail(err)
		}
	})
	t.Cleanup(running.Wait)
}

func (f *followers) followInGo(ctx context.Context, l *followerLog) error {
	base, _, _ := strings.Cut(f.url, "/api/")
	c, err := client.New(base, "")
	if err != nil {
		return err
	}
	defer c.Close()
	for e, err := range c.Follow(ctx, f.id, 0) {
		switch {
		case err != nil:
			return err
		case e.Type == client.MarkerGap:
			return fmt.Errorf("a gap: %s", e.Raw)
		case !e.Marker():
			l.add(string(e.Raw))
		}
	}
	return nil
}

// poll reads pages of events with curl.
func (f *followers) poll(ctx context.Context, l *followerLog) error {
	after := int64(0)
	for {
		cmd := exec.CommandContext(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "30", "--header", "Accept: application/json",
			fmt.Sprintf("%s/events?after=%d&wait=5s", f.url, after))
		out, err := cmd.Output()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the next request reads the page again
			<-time.After(100 * time.Millisecond)
			continue
		}
		var page struct {
			Items []json.RawMessage
			After int64
			Ended bool
		}
		if err := json.Unmarshal(out, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			l.add(string(item))
		}
		if after = page.After; page.Ended {
			return nil
		}
	}
}

// socket reads the messages of a WebSocket that have a position.
func (f *followers) socket(ctx context.Context, protocol string, l *followerLog) error {
	options := &websocket.DialOptions{}
	if protocol != "" {
		options.Subprotocols = []string{protocol}
	}
	for at := int64(0); ; {
		ended, err := f.connect(ctx, options, &at, l)
		if ended || err != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect reads one connection. It returns only errors of the server, because connections may
// break.
func (f *followers) connect(ctx context.Context, options *websocket.DialOptions, at *int64, l *followerLog) (ended bool, err error) {
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("%s/ws?after=%d", strings.Replace(f.url, "http:", "ws:", 1), *at), options) //nolint:bodyclose // the library has closed it
	if err != nil {
		return false, nil // the next connection receives the message again
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(4 << 20)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return websocket.CloseStatus(err) == websocket.StatusNormalClosure, nil
		}
		var m struct {
			Type string
			Seq  int64
		}
		if json.Unmarshal(data, &m) != nil {
			return false, nil // a truncated message
		}
		switch {
		case m.Type == "gap":
			return false, fmt.Errorf("a gap: %s", data)
		case m.Type == "init" || m.Type == "session:init" || m.Type == "caught_up" || m.Seq == 0:
		case m.Seq != *at+1:
			return false, fmt.Errorf("after %d came %s", *at, data)
		default:
			*at = m.Seq
			l.add(string(data))
		}
	}
}

// say makes the page send a prompt.
func (f *followers) say(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(f.page.input, text+"\n")
	require.NoError(t, err)
}

// answering waits until the Go client has received a word of the agent's answer.
func (f *followers) answering(t *testing.T, word string) {
	t.Helper()
	eventually(t, followersWithin, word+" is in the log", func() error {
		if f.first.hasDelta(word) {
			return nil
		}
		if _, err := f.first.all(); err != nil {
			return err
		}
		return fmt.Errorf("it is not; the page: %s", f.page.errors.String())
	})
}

// answered waits until the page has the whole turn.
func (f *followers) answered(t *testing.T, fault string) {
	t.Helper()
	eventually(t, followersWithin, "the page shows the end of the turn, after the fault: "+fault, func() error {
		lines, err := f.page.all()
		if err != nil {
			return err
		}
		if len(lines) <= f.ended {
			return fmt.Errorf("%d turns have ended", len(lines))
		}
		return nil
	})
	f.ended++
}

// compare ends the session, and compares the output of all clients.
func (f *followers) compare(t *testing.T, want []string) {
	t.Helper()
	require.NoError(t, f.agui.input.Close())
	require.NoError(t, f.page.input.Close())
	for _, s := range []*followerScript{f.page, f.agui} {
		f.wait(t, s.followerLog)
		lines, err := s.all()
		require.NoError(t, err, s.name)
		var got struct {
			Texts                     []string
			Opened, Cuts, Connections int
		}
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &got))
		require.Equal(t, want, got.Texts, s.name)
		require.Positive(t, got.Cuts, s.name)
		t.Logf("%s: opened %d times, %d connections, %d of them cut", s.name, got.Opened, got.Connections, got.Cuts)
	}
	f.must(t, http.StatusAccepted, "POST", "/api/sessions/"+f.id+"/stop", nil)

	var reference []any
	for i, l := range append([]*followerLog{f.first}, f.logs...) {
		f.wait(t, l)
		lines, err := l.all()
		require.NoError(t, err, l.name)
		got := make([]any, len(lines))
		for j, line := range lines {
			require.NoError(t, json.Unmarshal([]byte(line), &got[j]), l.name)
			require.EqualValues(t, j+1, got[j].(object)["seq"], "%s: neither a gap nor a repeat", l.name)
		}
		if i == 0 {
			reference = got
			continue
		}
		require.Equal(t, reference, got, l.name)
	}
	t.Logf("%d events", len(reference))

	for protocol, l := range f.sockets {
		f.wait(t, l)
		got, err := l.all()
		require.NoError(t, err, l.name)
		require.Len(t, got, len(reference), l.name)
		again := newFollowerLog("again") // one uninterrupted connection
		require.NoError(t, f.socket(t.Context(), protocol, again))
		fresh, _ := again.all()
		require.Equal(t, fresh, got, l.name)
	}
}

func (f *followers) wait(t *testing.T, l *followerLog) {
	t.Helper()
	select {
	case <-l.done:
	case <-time.After(followersWithin):
		lines, err := l.all()
		t.Fatalf("%s does not end: %d lines, %v", l.name, len(lines), err)
	}
}
