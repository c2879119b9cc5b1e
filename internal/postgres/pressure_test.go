package postgres_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// waitLimit bounds every wait of a test.
const waitLimit = 2 * time.Minute

// open opens the database of the harness with the given options.
func (b *harness) open(t *testing.T, o postgres.Options) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), b.url, o)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// lock locks the rows of sessions, like psql or a stuck process, until release is called.
func (b *harness) lock(t *testing.T, ids ...string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE", ids)
	require.NoError(t, err)
	release = sync.OnceFunc(func() {
		_, err := conn.Exec(context.Background(), "ROLLBACK") // the server ends the transaction of a closed connection later
		require.NoError(t, errors.Join(err, conn.Close(context.Background())))
	})
	t.Cleanup(release)
	return release
}

func prompt(sessionID string) session.Prompt {
	return session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: sessionID, Content: "hello"}
}

func TestWritesToLockedSessionLeavePoolToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.session(t)
	db := b.open(t, postgres.Options{MaxConns: 4, CallTimeout: waitLimit, LockTimeout: waitLimit, StatementTimeout: waitLimit})
	release := b.lock(t, b.id)
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for range 50 {
		all.Go(func() {
			if _, _, _, err := db.PromptSubmit(t.Context(), prompt(b.id)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	require.Eventually(t, func() bool { return b.waitsForLock(t) }, waitLimit, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for range 20 {
		_, _, _, err := db.PromptSubmit(ctx, prompt(other))
		require.NoError(t, err)
		_, err = db.SessionGet(ctx, b.id)
		require.NoError(t, err, "a locked session can be read")
	}
	release()
	all.Wait()
	require.Empty(t, failed)
	prompts, _, err := b.PromptList(t.Context(), b.id, 100, "")
	require.NoError(t, err)
	require.Len(t, prompts, 50)
	for i, p := range prompts {
		require.EqualValues(t, i+1, p.Ordinal)
	}
}

// waitsForLock reports whether a connection of the database waits for a lock.
func (b *harness) waitsForLock(t *testing.T) bool {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	var waits bool
	err = conn.QueryRow(b.ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
	require.NoError(t, err)
	return waits
}

func TestManyLockedSessionsLeavePoolToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := b.open(t, postgres.Options{MaxConns: 4, CallTimeout: waitLimit, LockTimeout: waitLimit, StatementTimeout: waitLimit})
	var locked []string
	for range 12 {
		locked = append(locked, b.session(t))
	}
	release := b.lock(t, locked...)
	var all sync.WaitGroup
	errs := make(chan error, len(locked))
	for _, id := range locked {
		all.Go(func() {
			_, _, _, err := db.PromptSubmit(t.Context(), prompt(id))
			errs <- err
		})
	}
	require.Eventually(t, func() bool { return b.waitsForLock(t) }, waitLimit, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for range 20 {
		_, _, _, err := db.PromptSubmit(ctx, prompt(b.id))
		require.NoError(t, err)
	}
	release()
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func TestWaitForLockedSessionIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := b.open(t, postgres.Options{LockTimeout: 50 * time.Millisecond, CallTimeout: waitLimit, StatementTimeout: waitLimit})
	release := b.lock(t, b.id)
	_, _, _, err := db.PromptSubmit(t.Context(), prompt(b.id))
	requireCode(t, failure.Unavailable, err)
	require.ErrorContains(t, err, b.id, "the session is named")
	release()
	_, _, _, err = db.PromptSubmit(t.Context(), prompt(b.id))
	require.NoError(t, err)
	_, _, _, err = db.PromptSubmit(t.Context(), prompt("ses_none"))
	requireCode(t, failure.NoSession, err)
}

func TestWaitersPerSessionAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		require.NoError(t, postgres.HoldSession(t.Context(), b.DB, b.id, func() { close(held); <-release }))
	})
	<-held
	const callers = 400
	errs := make(chan error, callers)
	for range callers {
		all.Go(func() {
			_, _, _, err := b.PromptSubmit(t.Context(), prompt(b.id))
			errs <- err
		})
	}
	refused := 0
	for range callers - 128 { // the others wait
		err := <-errs
		requireCode(t, failure.Unavailable, err)
		require.ErrorContains(t, err, "128 requests are waiting for session "+b.id)
		refused++
	}
	close(release)
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, callers-128, refused)
}

// TestHelperThatHoldsSession is the process that the next test freezes.
func TestHelperThatHoldsSession(t *testing.T) { //nolint:paralleltest // a separate process
	address, id := os.Getenv("POSTGRES_TEST_URL"), os.Getenv("POSTGRES_TEST_SESSION")
	if address == "" {
		t.Skip("it is run by TestProcessFrozenInTransactionReleasesSession")
	}
	db, err := postgres.Open(t.Context(), address, postgres.Options{IdleInTransactionTimeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	err = postgres.HoldSession(t.Context(), db, id, func() {
		os.Stdout.WriteString("held")
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) //nolint:errcheck // it is this process
		select {}
	})
	require.NoError(t, err)
}

func TestProcessFrozenInTransactionReleasesSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestHelperThatHoldsSession$")
	cmd.Env = append(os.Environ(), "POSTGRES_TEST_URL="+b.url, "POSTGRES_TEST_SESSION="+b.id)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait() //nolint:errcheck // it was killed
	}()
	line := make([]byte, 4)
	_, err = out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "held", string(line))
	db := b.open(t, postgres.Options{LockTimeout: waitLimit, CallTimeout: waitLimit, StatementTimeout: waitLimit})
	_, _, _, err = db.PromptSubmit(t.Context(), prompt(b.id))
	require.NoError(t, err, "the server ended the transaction of the frozen process")
}

// TestServerEndsFrozenTransactionBeforeItsWaitersTimeOut compares the defaults.
func TestServerEndsFrozenTransactionBeforeItsWaitersTimeOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	have := b.open(t, postgres.Options{}).ServerTimeouts(t.Context(), t)
	require.Equal(t, map[string]string{
		"idle_in_transaction_session_timeout": "5s", "lock_timeout": "10s", "statement_timeout": "15s",
	}, have)
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	q := u.Query()
	q.Set("statement_timeout", "7s")
	q.Set("pool_max_conns", "3")
	u.RawQuery = q.Encode()
	db, err := postgres.Open(t.Context(), u.String(), postgres.Options{LockTimeout: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	require.Equal(t, 3, db.MaxConns(), "the URL's")
	require.Equal(t, map[string]string{
		"idle_in_transaction_session_timeout": "5s", "lock_timeout": "3s", "statement_timeout": "7s",
	}, db.ServerTimeouts(t.Context(), t))
	db, err = postgres.Open(t.Context(), u.String(), postgres.Options{MaxConns: 5})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	require.Equal(t, 5, db.MaxConns(), "the option's")
}

// everyCall makes one call of each kind.
func everyCall(ctx context.Context, db *postgres.DB, id string) map[string]error {
	calls := map[string]func() error{
		"read":  func() error { _, err := db.SessionGet(ctx, id); return err },
		"list":  func() error { _, _, err := db.SessionList(ctx, listing.Filter{}); return err },
		"write": func() error { _, _, _, err := db.PromptSubmit(ctx, prompt(id)); return err },
		"create": func() error {
			_, _, err := db.SessionCreate(ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{})
			return err
		},
		"append": func() error { _, err := db.EventsTryAppend(ctx, []eventlog.Append{{SessionID: id}}); return err },
		"attach": func() error {
			_, err := db.RunAttach(ctx, "run_none", "t", run.Dispatch{No: 1, Attempt: 1}, nil)
			return err
		},
		"end": func() error { _, err := db.RunEnd(ctx, run.Ending{RunID: "run_none"}); return err },
		"transcript": func() error {
			return db.TranscriptAppend(ctx, []transcript.Segment{{SessionID: id, Path: "p", Version: 1, Data: []byte("x")}})
		},
		"files":        func() error { return db.FilesAppend(ctx, workspacefile.Batch{SessionID: id}) },
		"follow":       func() error { return db.EventsRead(ctx, []*eventlog.Page{{SessionID: id, Limit: 1, Bytes: 1 << 10}}) },
		"conversation": func() error { _, err := db.Conversation(ctx, id); return err },
		"execute":      func() error { return db.SandboxesSeen(ctx, seen(id, 1, session.SandboxReady)) },
		"ping":         func() error { return db.Ping(ctx) },
	}
	var mu sync.Mutex
	out := map[string]error{}
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			out[name] = err
		})
	}
	all.Wait()
	return out
}

// requireBounded requires that every call on db fails by its own deadline, then calls heal, and
// then requires that all calls succeed.
func requireBounded(t *testing.T, db *postgres.DB, id string, heal func()) {
	t.Helper()
	for name, err := range everyCall(context.Background(), db, id) { // without a deadline of the caller
		require.Error(t, err, name)
		require.Equal(t, failure.Unavailable, failure.CodeOf(err), "%s: %v", name, err)
	}
	heal()
	require.Eventually(t, func() bool {
		for _, err := range everyCall(context.Background(), db, id) {
			if failure.CodeOf(err) == failure.Unavailable {
				return false
			}
		}
		return true
	}, waitLimit, 50*time.Millisecond)
}

func TestEveryCallEndsWhilePostgresIsFrozen(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, shortDir(t))
	b := &harness{url: server.URL(t), ctx: t.Context()}
	b.DB = postgrestest.Open(t, b.url)
	b.id = b.session(t)
	db := b.open(t, postgres.Options{CallTimeout: 2 * time.Second, BulkTimeout: 2 * time.Second, ConnectTimeout: 2 * time.Second})
	everyCall(t.Context(), db, b.id) // opens connections before the freeze
	thaw := server.Freeze(t)
	requireBounded(t, db, b.id, thaw)
}

func TestCallsEndWhenPostgresDisappearsWithoutReset(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, shortDir(t))
	b := &harness{url: server.URL(t), ctx: t.Context()}
	b.DB = postgrestest.Open(t, b.url)
	b.id = b.session(t)
	proxy := startProxy(t, server.Socket())
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	q := u.Query()
	q.Del("host")
	u.Host, u.RawQuery = proxy.listener.Addr().String(), q.Encode()
	b.url = u.String()
	db := b.open(t, postgres.Options{CallTimeout: 2 * time.Second, BulkTimeout: 2 * time.Second, ConnectTimeout: 2 * time.Second})
	everyCall(t.Context(), db, b.id)
	proxy.swallow(true)
	// Like after a failover, old connections stay dead: only new ones work.
	requireBounded(t, db, b.id, func() { proxy.swallow(false) })
}

// shortDir returns a directory whose path is short enough for a socket, and that the user who runs
// Postgres can access.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(postgrestest.Memory(), "owpg") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { // the server's keeper removes its files
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			return err == nil && len(left) == 0
		}, waitLimit, 20*time.Millisecond)
		require.NoError(t, os.RemoveAll(dir))
	})
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	return dir
}

// proxy forwards bytes between TCP and a Unix socket, or swallows them.
type proxy struct {
	listener net.Listener
	socket   string
	mu       sync.Mutex
	dropping bool
	dead     chan struct{} // closed to silence the current connections permanently
}

func startProxy(t *testing.T, socket string) *proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, socket: socket, dead: make(chan struct{})}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); listener.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(ctx, client) })
		}
	})
	return p
}

func (p *proxy) swallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropping = on
	if on {
		close(p.dead)
		p.dead = make(chan struct{})
	}
}

func (p *proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	dropping, dead := p.dropping, p.dead
	p.mu.Unlock()
	if dropping {
		<-ctx.Done()
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2) // one for each direction
	var both sync.WaitGroup
	defer both.Wait()
	defer client.Close()
	defer server.Close()
	for _, d := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer func() { done <- struct{}{} }()
			buffer := make([]byte, 64<<10)
			for {
				n, err := d[0].Read(buffer)
				if err != nil {
					return
				}
				select {
				case <-dead:
					<-ctx.Done() // keeps the connection open without forwarding anything
					return
				default:
				}
				if _, err := d[1].Write(buffer[:n]); err != nil {
					return
				}
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-done:
	}
}

func TestConnectionsLostBeforeResponse(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, shortDir(t))
	proxy := startProxy(t, server.Socket())
	u, err := url.Parse(server.URL(t))
	require.NoError(t, err)
	u.Host, u.RawQuery = proxy.listener.Addr().String(), "user=overwinter&sslmode=disable"
	db, err := postgres.Open(t.Context(), u.String(), postgres.Options{UnansweredTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	options := postgres.SocketOptions(t.Context(), t, db)
	require.Equal(t, map[string]int{"user timeout": 10000, "idle": 4, "interval": 2, "count": 3, "keepalive": 1}, options)
	settings := strings.Join(db.Settings(t.Context(), t, "client_connection_check_interval"), "")
	require.Equal(t, "5s", settings)
}

func TestBulkCallsMayTakeLonger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := b.open(t, postgres.Options{CallTimeout: 10 * time.Second, StatementTimeout: 10 * time.Second, BulkTimeout: 77 * time.Second})
	limit, left := postgres.InBulk(t.Context(), t, db, b.id)
	require.Equal(t, "77s", limit)
	require.Greater(t, left, 20*time.Second)
	require.Equal(t, "10s", postgres.InCall(t.Context(), t, db, b.id))
}

func TestLockedSessionIsLeftOutOfAppend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.session(t)
	release := b.lock(t, b.id)
	event := []eventlog.Draft{draft("x", 0, 0, `{}`)}
	appends := []eventlog.Append{
		{SessionID: b.id, Events: event}, {SessionID: other, Events: event}, {SessionID: b.id, Events: event}, {SessionID: "ses_none", Events: event},
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	verdicts, err := b.EventsTryAppend(ctx, appends)
	require.NoError(t, err)
	require.Equal(t, []error{eventlog.ErrBusy, nil, eventlog.ErrBusy, eventlog.ErrBusy}, verdicts)
	_, err = b.open(t, postgres.Options{CallTimeout: waitLimit}).EventsAppend(ctx, appends[:1])
	requireCode(t, failure.Unavailable, err)
	release()
	verdicts, err = b.EventsAppend(ctx, appends)
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil, nil}, verdicts[:3])
	requireCode(t, failure.NoSession, verdicts[3])
	require.EqualValues(t, 2, b.position(t))
}
