package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// waitLimit bounds each wait of a test.
const waitLimit = 2 * time.Minute

// umask is read-locked by tests, and locked while a server starts to listen. The server changes the
// umask of the process for its socket, and directories created meanwhile would be inaccessible to
// their owner.
var umask sync.RWMutex

// served is a state directory with a server. The tests of this package start no agent, because a
// server waits for every child of its process and kills all descendants. The tests of
// cmd/overwinter-runner start agents, each in a separate process.
type served struct {
	t         *testing.T
	dir, home string
	token     string
	hash      string
	stop      func() error
}

func newServed(t *testing.T) *served {
	t.Helper()
	umask.RLock()
	t.Cleanup(umask.RUnlock)
	root, err := os.MkdirTemp("", "ows") //nolint:usetesting // the path of a socket is at most 107 bytes, too short for the name of a test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	s := &served{t: t, dir: filepath.Join(root, "state"), home: filepath.Join(root, "home")}
	require.NoError(t, os.Mkdir(s.home, 0o700))
	s.token, s.hash = runner.NewToken()
	return s
}

func (s *served) config() Config {
	return Config{Dir: s.dir, Home: s.home, Workspace: s.home, TokenHash: s.hash, Logger: slog.New(slog.DiscardHandler)}
}

// serve starts a server and waits until it listens.
func (s *served) serve() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	umask.RUnlock()
	umask.Lock()
	defer func() {
		umask.Unlock()
		umask.RLock()
	}()
	go func() { ended <- Serve(ctx, s.config()) }()
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	s.t.Cleanup(func() { _ = s.stop() })
	require.Eventually(s.t, func() bool {
		conn, err := net.Dial("unix", runner.SocketPath(s.dir))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, waitLimit, time.Millisecond)
}

// peer is a connection to the server.
type peer struct {
	t    *testing.T
	conn *net.UnixConn
	r    *bufio.Reader
}

func (s *served) dial() *peer {
	s.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: runner.SocketPath(s.dir), Net: "unix"})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(waitLimit)))
	return &peer{t: s.t, conn: conn, r: bufio.NewReader(conn)}
}

func (p *peer) send(m runner.Message) *peer {
	p.t.Helper()
	w := bufio.NewWriter(p.conn)
	require.NoError(p.t, errors.Join(runner.WriteMessage(w, m), w.Flush()))
	return p
}

// next returns the next message that is not Alive; nil at the end.
func (p *peer) next() runner.Message {
	p.t.Helper()
	for {
		m, err := runner.ReadMessage(p.r)
		if err != nil {
			require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded)
			return nil
		}
		if _, ok := m.(*runner.Alive); !ok {
			return m
		}
	}
}

// refused reads an error, after which the connection must end.
func (p *peer) refused(code runner.Code) string {
	p.t.Helper()
	m := p.next()
	require.IsType(p.t, &runner.Error{}, m)
	require.Equal(p.t, code, m.(*runner.Error).Code)
	require.Nil(p.t, p.next())
	return m.(*runner.Error).Message
}

func (s *served) hello(h runner.Hello) *peer {
	s.t.Helper()
	h.Token, h.Version = s.token, runner.ProtocolVersion
	return s.dial().send(&h)
}

// link attaches to a run.
func (s *served) link(h runner.Hello) (*peer, runner.Welcome) {
	s.t.Helper()
	p := s.hello(h)
	m := p.next()
	require.IsType(s.t, &runner.Welcome{}, m)
	return p, *m.(*runner.Welcome)
}

func (s *served) command(c runner.Command) runner.Message {
	s.t.Helper()
	c.Token, c.Version = s.token, runner.ProtocolVersion
	return s.dial().send(&c).next()
}

func (s *served) ping() runner.Ping {
	s.t.Helper()
	m := s.command(runner.Command{Ping: true})
	require.IsType(s.t, &runner.Result{}, m)
	p, err := runner.ParsePing(m.(*runner.Result).Data)
	require.NoError(s.t, err)
	return p
}

func TestConnectionMessagesAreValidated(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	v := runner.ProtocolVersion
	s.dial().send(&runner.Hello{Token: "wrong", Version: v, Run: "run_1"}).refused(runner.CodeToken)
	s.dial().send(&runner.Command{Token: "wrong", Version: v, Ping: true}).refused(runner.CodeToken)
	s.dial().send(&runner.Hello{Version: v, Run: "run_1"}).refused(runner.CodeToken)
	s.dial().send(&runner.Hello{Token: s.token, Version: v + 1, Run: "run_1"}).refused(runner.CodeVersion)
	s.dial().send(&runner.Settle{}).refused(runner.CodeInvalid)
	s.dial().send(&runner.Command{Token: s.token, Version: v}).refused(runner.CodeInvalid)
	s.hello(runner.Hello{Run: "../run"}).refused(runner.CodeInvalid)
	s.hello(runner.Hello{Run: "run_1", From: -1}).refused(runner.CodeInvalid)
	garbage := s.dial()
	_, err := garbage.conn.Write([]byte("\xff\xff\xff\xff\xff garbage"))
	require.NoError(t, err)
	require.Nil(t, garbage.next())
	require.Equal(t, os.Getpid(), s.ping().PID, "it still serves")
	require.Empty(t, s.ping().Watch)
}

func TestLinkMessagesAreValidated(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	for name, messages := range map[string][]runner.Message{
		"a diff without a survey":   {&runner.NoDiff{}},
		"files twice":               {&runner.FilesKnown{}, &runner.FilesKnown{}},
		"a message of the runner":   {&runner.Welcome{}},
		"a second hello":            {&runner.Hello{Run: "run_1"}},
		"a detach that is attach's": {&runner.Detach{}},
	} {
		p, _ := s.link(runner.Hello{Run: "run_1"})
		for _, m := range messages {
			p.send(m)
		}
		require.NotEmpty(t, p.refused(runner.CodeInvalid), name)
	}
	p, _ := s.link(runner.Hello{Run: "run_1"})
	p.send(&runner.Input{Data: []byte("to no agent")}).send(&runner.Settle{}).send(&runner.Flush{ID: 7})
	require.Equal(t, &runner.Flushed{ID: 7}, p.next(), "without an agent these do nothing")
}

func TestLinksDisplaceEachOther(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	old, welcome := s.link(runner.Hello{Run: "run_1", Attempt: 2})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1, Steers: true, Seals: true}, welcome)
	s.hello(runner.Hello{Run: "run_1", Attempt: 1}).refused(runner.CodeStale)
	newer, _ := s.link(runner.Hello{Run: "run_1", Attempt: 2})
	require.Equal(t, &runner.Displaced{}, old.next())
	require.Nil(t, old.next())
	other, _ := s.link(runner.Hello{Run: "run_2", Attempt: 1, Files: &workspacefile.Position{}})
	require.Equal(t, &runner.Displaced{}, newer.next(), "there is one for all runs, and attempts count by run")
	require.IsType(t, &runner.FilesBegun{}, other.next())
	require.Eventually(t, func() bool { return s.ping().Watch != "" }, waitLimit, time.Millisecond)
	require.NoError(t, s.stop())
	other.refused(runner.CodeStopping)
}

// TestLinksShareBuffer checks that a link takes the buffer of one that has ended, which can no longer
// write to it.
func TestLinksShareBuffer(t *testing.T) {
	t.Parallel()
	s := &Server{}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	require.NoError(t, err)
	l := &link{s: s, conn: conn, out: conn, w: s.takeWriter(io.Discard)}
	l.ctx, l.stop = context.WithCancel(t.Context())
	shared := l.w
	require.NotSame(t, shared, s.takeWriter(io.Discard), "two links at a time")
	require.NoError(t, l.send(&runner.Alive{}, false))
	require.NotZero(t, shared.Buffered())
	s.keepWriter(l)

	var out bytes.Buffer
	require.Same(t, shared, s.takeWriter(&out))
	require.Error(t, l.send(&runner.Alive{}, true))
	l.end(&runner.Displaced{})
	require.Error(t, conn.Close(), "the link has closed it")
	require.NoError(t, shared.Flush())
	require.Zero(t, out.Len())
}

func TestUnstartableAgentEndsRun(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	p, _ := s.link(runner.Hello{Run: "run_1"})
	p.send(&runner.Start{Launch: runner.Launch{Argv: []string{"no-such-program"}, Dir: s.home}})
	exit := func(p *peer) runner.ExitReport {
		for {
			m := p.next()
			require.NotNil(t, m)
			if f, ok := m.(*runner.Frame); ok {
				require.Equal(t, runner.Exit, f.Stream)
				require.Zero(t, f.No)
				var r runner.ExitReport
				require.NoError(t, json.Unmarshal(f.Data, &r))
				return r
			}
		}
	}
	require.Equal(t, runner.ExitReport{Code: 127, Stderr: "no-such-program: command not found"}, exit(p))
	again, welcome := s.link(runner.Hello{Run: "run_1"})
	require.Equal(t, runner.Delivering, welcome.Delivery, "the prompt reached no agent")
	require.Equal(t, 127, exit(again).Code)
	require.True(t, welcome.Open)
	require.NoError(t, s.stop())

	s.serve()
	_, welcome = s.link(runner.Hello{Run: "run_1"})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Cut, LastFrame: 0, Steers: true, Seals: true}, welcome)
	require.NoFileExists(t, filepath.Join(s.dir, "open"))
}

// TestLeftoversOfEarlierServer uses state directories of servers that were killed at various points.
func TestLeftoversOfEarlierServer(t *testing.T) {
	t.Parallel()
	marks := func(t *testing.T, s *served, run string, exited bool, marks ...journal.Mark) {
		t.Helper()
		runs := filepath.Join(s.dir, "runs")
		require.NoError(t, os.MkdirAll(runs, 0o700))
		j, err := journal.Create(runs, run, marks[0])
		require.NoError(t, err)
		for _, m := range marks[1:] {
			require.NoError(t, j.Mark(m))
		}
		if exited {
			_, err = j.Append(runner.Exit, time.Now(), []byte(`{}`), false)
			require.NoError(t, err)
		}
		require.NoError(t, j.Close())
	}
	open := func(t *testing.T, s *served, run string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "open"), []byte(run+"\n"), 0o600))
	}
	for name, c := range map[string]struct {
		left   func(t *testing.T, s *served)
		want   runner.Delivery
		frames int64
	}{
		"while the prompt was written": {func(t *testing.T, s *served) {
			marks(t, s, "run_1", false, journal.Delivering)
			open(t, s, "run_1")
		}, runner.Cut, 0},
		"while the agent worked": {func(t *testing.T, s *served) {
			marks(t, s, "run_1", false, journal.Delivering, journal.Delivered)
			open(t, s, "run_1")
		}, runner.Cut, 0},
		"after the agent had ended": {func(t *testing.T, s *served) {
			marks(t, s, "run_1", true, journal.Delivering, journal.Delivered)
			open(t, s, "run_1")
		}, runner.Delivered, 1},
		"after a seal": {func(t *testing.T, s *served) {
			marks(t, s, "run_1", false, journal.Delivering, journal.Delivered, journal.Sealed)
			open(t, s, "run_1")
		}, runner.Delivered, 0},
		"before the journal was made": {func(t *testing.T, s *served) {
			require.NoError(t, os.MkdirAll(s.dir, 0o700))
			open(t, s, "run_1")
		}, runner.NotStarted, 0},
		"with a name that is not a run's": {func(t *testing.T, s *served) {
			require.NoError(t, os.MkdirAll(s.dir, 0o700))
			open(t, s, "../../run_1")
		}, runner.NotStarted, 0},
		"with the next run begun, but not named": {func(t *testing.T, s *served) {
			marks(t, s, "run_1", false, journal.Delivering)
		}, runner.Cut, 0},
		"with patterns that are damaged": {func(t *testing.T, s *served) {
			require.NoError(t, os.MkdirAll(s.dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "transcripts.json"), []byte(`["/x`), 0o600))
		}, runner.NotStarted, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServed(t)
			c.left(t, s)
			s.serve()
			_, welcome := s.link(runner.Hello{Run: "run_1"})
			require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: c.want, LastFrame: c.frames - 1, Steers: true, Seals: true}, welcome)
			require.NoFileExists(t, filepath.Join(s.dir, "open"))
			require.Empty(t, s.ping().Run)
		})
	}
}

func TestOneServerForDirectory(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	require.ErrorContains(t, Serve(t.Context(), s.config()), "another runner has "+s.dir)
	info, err := os.Stat(runner.SocketPath(s.dir))
	require.NoError(t, err, "the socket is still the first one's")
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, os.Getpid(), s.ping().PID)
	require.NoError(t, s.stop())
	s.serve() // replaces the socket of the previous one
	require.Equal(t, os.Getpid(), s.ping().PID)
}

func TestSealWithoutAgent(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	log := filepath.Join(s.home, "log.jsonl")
	require.NoError(t, os.WriteFile(log, []byte("one\n"), 0o600))
	patterns, err := json.Marshal([]string{filepath.Join(s.home, "*.jsonl")})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "transcripts.json"), patterns, 0o600))
	s.serve()
	p := s.dial().send(&runner.Command{Token: s.token, Version: runner.ProtocolVersion, Seal: &runner.SealRequest{}})
	require.Equal(t, &runner.Segment{Path: log, Version: 1, Data: []byte("one\n")}, p.next(), "the patterns are those of the newest launch")
	m := p.next()
	require.IsType(t, &runner.Result{}, m)
	require.JSONEq(t, `{"files": ["`+log+`"], "run": "", "lastFrame": -1}`, string(m.(*runner.Result).Data))
	require.True(t, s.ping().Sealed)

	require.NoError(t, os.Remove(log))
	require.NoError(t, os.Symlink(filepath.Join(s.home, "void"), filepath.Join(s.home, "void.jsonl")))
	m = s.command(runner.Command{Seal: &runner.SealRequest{Files: &workspacefile.Position{}}})
	require.IsType(t, &runner.FilesBegun{}, m)
}

// TestSealReportsQuietWorkspace checks that Quiet is the first message to a command that
// requests it. A command of an earlier release does not know the message.
func TestSealReportsQuietWorkspace(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.serve()
	seal := &runner.SealRequest{FilesFrom: &workspacefile.Position{Session: "ses_1"}}
	asked := s.dial().send(&runner.Command{Token: s.token, Version: runner.ProtocolVersion, Seal: seal, Quiet: true})
	require.IsType(t, &runner.Quiet{}, asked.next())
	require.IsType(t, &runner.FilesBegun{}, asked.next())
	require.IsType(t, &runner.Result{}, asked.next())
	require.IsType(t, &runner.FilesBegun{}, s.command(runner.Command{Seal: seal}))
}

// TestWorkerThatStopsReading checks that a worker that stops reading delays neither the server nor
// the next link.
func TestWorkerThatStopsReading(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	log := filepath.Join(s.home, "log.jsonl")
	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	require.NoError(t, os.WriteFile(log, make([]byte, 8<<20), 0o600)) // more than fits into a socket
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "transcripts.json"), []byte(`["`+log+`"]`), 0o600))
	s.serve()
	deaf, _ := s.link(runner.Hello{Run: "run_1"})
	deaf.send(&runner.Flush{ID: 1})
	newer, _ := s.link(runner.Hello{Run: "run_1", Known: []transcript.Position{{Path: log, Version: 1, Size: 8 << 20}}})
	newer.send(&runner.Flush{ID: 2})
	require.Equal(t, &runner.Flushed{ID: 2}, newer.next())
	require.NoError(t, s.stop())
	newer.refused(runner.CodeStopping)
	_, err := io.Copy(io.Discard, deaf.conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "its connection was closed")
}
