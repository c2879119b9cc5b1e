package activities_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var errKilled = errors.New("the process was killed")

// mortal is a process that takes steps, one at a time, with a fault at one of them. A step is a
// statement or a commit that Postgres has answered, a call of the provider, or a call of Temporal.
type mortal struct {
	mu     sync.Mutex
	steps  []string
	at     int // the number of the step with the fault, from 1; 0 for none
	fault  stepFault
	killed bool
	away   part          // the part that currently refuses the process
	kill   func()        // ends the process
	cut    func()        // ends its connections to Postgres
	frozen chan struct{} // closed when the process is frozen
	thawed chan struct{} // closed to let a frozen process continue
}

// stepFault is a fault after a step, before the process has the answer.
type stepFault int

const (
	kills          stepFault = iota
	loses                    // the answer is lost, and the process continues
	freezes                  // the process is frozen until it is thawed
	missesPostgres           // Postgres refuses the process until the test ends the outage
	missesProvider           // the same for the provider
)

// part is a part of the system that may refuse a process.
type part int

const (
	noPart part = iota
	ofPostgres
	ofProvider
)

// taken counts a step that was done, and reports whether its answer is lost.
func (m *mortal) taken(step string) (lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.killed {
		return true
	}
	m.steps = append(m.steps, step)
	if len(m.steps) != m.at {
		return false
	}
	switch m.fault {
	case kills:
		m.killed = true
		m.kill()
	case freezes: // the whole process, since no step is taken while the lock is held
		close(m.frozen)
		<-m.thawed
		return false
	case missesPostgres:
		m.away = ofPostgres
		m.cut()
	case missesProvider:
		m.away = ofProvider
	case loses:
	}
	return true
}

func (m *mortal) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killed
}

// missing returns the part that currently refuses the process.
func (m *mortal) missing() part {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

// back ends the outage.
func (m *mortal) back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = noPart
}

// request is a call of the provider.
func request[T any](m *mortal, step string, do func() (T, error)) (T, error) {
	if m.missing() == ofProvider {
		var none T
		return none, driver.Errorf(driver.Unavailable, step, "", "connection refused")
	}
	return call(m, step, do)
}

// call takes a step that is not a statement.
func call[T any](m *mortal, step string, do func() (T, error)) (T, error) {
	var none T
	if m.dead() {
		return none, errKilled
	}
	out, err := do()
	if m.taken(step) {
		return none, driver.Errorf(driver.Unavailable, step, "", "the answer is lost")
	}
	return out, err
}

// mortalDriver is the provider as the process reaches it.
type mortalDriver struct {
	*faulty
	process *mortal
}

func (d mortalDriver) Terminate(ctx context.Context, id string) error {
	_, err := request(d.process, "terminate", func() (struct{}, error) { return struct{}{}, d.faulty.Terminate(ctx, id) })
	return err
}

func (d mortalDriver) DeleteImage(ctx context.Context, id string) error {
	_, err := request(d.process, "delete image", func() (struct{}, error) { return struct{}{}, d.faulty.DeleteImage(ctx, id) })
	return err
}

func (d mortalDriver) Poll(ctx context.Context, id string) (driver.Status, error) {
	return request(d.process, "poll", func() (driver.Status, error) { return d.faulty.Poll(ctx, id) })
}

func (d mortalDriver) ListImages(ctx context.Context, tags map[string]string) ([]driver.ImageListing, error) {
	return request(d.process, "list images", func() ([]driver.ImageListing, error) { return d.faulty.ListImages(ctx, tags) })
}

func (d mortalDriver) ExitSnapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	return request(d.process, "exit snapshot", func() (string, error) { return d.faulty.ExitSnapshot(ctx, id, budget) })
}

// engine replaces the workflows of sessions. The stop signal terminates the session, as its
// workflow would.
type engine struct {
	mu   sync.Mutex
	stop func(sessionID string)
	runs map[string]int
}

func (e *engine) SignalStop(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[id] == 0 {
		e.runs[id] = 1
	}
	e.stop(id)
	return nil
}

func (e *engine) Erase(_ context.Context, id string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := e.runs[id] > 0
	delete(e.runs, id)
	return found, nil
}

func (e *engine) left(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// mortalEngine is the engine as the process reaches it.
type mortalEngine struct {
	*engine
	process *mortal
}

func (e mortalEngine) SignalStop(ctx context.Context, id string) error {
	_, err := call(e.process, "stop", func() (struct{}, error) { return struct{}{}, e.engine.SignalStop(ctx, id) })
	return err
}

func (e mortalEngine) Erase(ctx context.Context, id string) (bool, error) {
	return call(e.process, "erase", func() (bool, error) { return e.engine.Erase(ctx, id) })
}

// pgRelay relays the connections of a process to Postgres. It counts a step before it passes on the answer to a statement, and discards
// the answer if the process is killed at that step.
type pgRelay struct {
	process *mortal
	server  string // its socket
	url     string // of the relay

	mu    sync.Mutex
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// newRelay relays to the server of a URL until the test ends.
func newRelay(t *testing.T, of string, process *mortal) *pgRelay {
	t.Helper()
	config, err := pgx.ParseConfig(of)
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &pgRelay{process: process, server: filepath.Join(config.Host, fmt.Sprintf(".s.PGSQL.%d", config.Port)), conns: map[net.Conn]bool{}}
	w.url = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", url.UserPassword(config.User, config.Password), l.Addr(), config.Database)
	process.kill, process.cut = w.cut, w.cut
	w.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if process.dead() || process.missing() == ofPostgres {
				client.Close()
				continue
			}
			w.all.Go(func() { w.relay(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut()
		w.all.Wait()
	})
	return w
}

// cut ends all connections. The server rolls back uncommitted transactions.
func (w *pgRelay) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

func (w *pgRelay) relay(client net.Conn) {
	server, err := net.Dial("unix", w.server)
	if err != nil {
		client.Close()
		return
	}
	w.mu.Lock()
	w.conns[client], w.conns[server] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, client)
		delete(w.conns, server)
		client.Close()
		server.Close()
	}()
	ran := make(chan bool, 100) // of requests without an answer: whether they execute something; one connection has few
	w.all.Go(func() {
		defer server.Close()
		defer close(ran)
		if _, _, err := message(client, server, true); err != nil {
			return
		}
		ran <- false
		executes := false
		for {
			kind, _, err := message(client, server, false)
			if err != nil {
				return
			}
			switch kind {
			case 'E', 'Q':
				executes = true
			}
			if kind == 'S' || kind == 'Q' {
				ran <- executes
				executes = false
			}
		}
	})
	// An answer is held back until it is complete.
	var answer bytes.Buffer
	last := ""
	for {
		kind, body, err := message(server, &answer, false)
		if err != nil {
			return
		}
		switch kind {
		case 'C':
			last = strings.TrimRight(string(body), "\x00")
		case 'Z':
			if <-ran && w.process.taken(last) {
				return
			}
			if _, err := answer.WriteTo(client); err != nil {
				return
			}
		case 'R', 'A': // the server may now wait for the client
			if _, err := answer.WriteTo(client); err != nil {
				return
			}
		}
	}
}

// message passes one message of the protocol on. The first of a client has no kind.
func message(from io.Reader, to io.Writer, first bool) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	if !first {
		kind = head[0]
	}
	body = make([]byte, int(binary.BigEndian.Uint32(head[len(head)-4:]))-4)
	if _, err := io.ReadFull(from, body); err != nil {
		return 0, nil, err
	}
	if _, err := to.Write(head); err != nil {
		return 0, nil, err
	}
	_, err = to.Write(body)
	return kind, body, err
}

// purging is a process that erases sessions.
type purging struct {
	*mortal
	ctx    context.Context
	purger *activities.Purger
	close  func() // ends its connections
}

// purging starts a process that has a fault at a step.
func (b *harness) purging(t *testing.T, e *engine, at int, fault stepFault) *purging {
	t.Helper()
	process := &mortal{fault: fault, frozen: make(chan struct{}), thawed: make(chan struct{})}
	relay := newRelay(t, b.url, process)
	ctx, cancel := context.WithCancel(b.ctx)
	t.Cleanup(cancel)
	process.kill = func() { cancel(); relay.cut() }
	db, err := postgres.Open(ctx, relay.url, postgres.Options{MaxConns: 4, ConnectTimeout: waitLimit, CallTimeout: waitLimit})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	installation, err := db.Installation(ctx)
	require.NoError(t, err)
	process.mu.Lock()
	process.steps, process.at = nil, at
	process.mu.Unlock()
	config := b.config
	config.Store = db
	config.Sandbox = sandbox.NewProvider(mortalDriver{b.driver, process}, sandbox.Options{Installation: installation, PollInterval: 10 * time.Millisecond})
	control, _ := activities.New(config)
	return &purging{process, ctx, activities.NewPurger(control, db, mortalEngine{e, process}, activities.Retention{}), db.Close}
}

// purge lets a process erase the session of the harness until it is erased or the process is
// killed. It makes everything due that is scheduled for later.
func (b *harness) purge(t *testing.T, p *purging) (erased bool) {
	t.Helper()
	for range 50 {
		b.due(t)
		err := p.purger.Pass(p.ctx)
		if p.dead() {
			return false
		}
		if p.fault != loses {
			require.NoError(t, err)
		}
		state := b.purgeState(t)
		b.visible(t, state)
		if state == purge.Erased {
			return true
		}
	}
	require.FailNow(t, "the purge makes no progress", "steps: %v", p.steps)
	return false
}

// due makes everything due that is scheduled for later.
func (b *harness) due(t *testing.T) {
	t.Helper()
	b.sql(t, "UPDATE purges SET next_at = now() WHERE state <> 'erased'")
	b.sql(t, "UPDATE snapshots SET delete_after = now()")
	b.sql(t, "UPDATE exit_images SET next_at = now()")
}

// visible checks the answers that a client gets about a session whose purge is in a state.
func (b *harness) visible(t *testing.T, state purge.State) {
	t.Helper()
	s, err := b.db.SessionGet(b.ctx, b.id)
	again, requestErr := b.db.PurgeRequest(b.ctx, b.id, fork.Detach)
	switch state {
	case purge.Stopping:
		require.NoError(t, err)
		require.NoError(t, requestErr)
		require.Equal(t, state, again.Purge.State)
	case purge.Erasing: // the row is deleted before the state is recorded
		if err == nil {
			require.NoError(t, requestErr)
			require.Equal(t, state, s.Purge.State)
			require.Equal(t, state, again.Purge.State)
			break
		}
		fallthrough
	case purge.Checking, purge.Erased:
		require.Equal(t, failure.NoSession, failure.CodeOf(err), "error: %v", err)
		require.Equal(t, failure.NoSession, failure.CodeOf(requestErr), "error: %v", requestErr)
	}
	if err != nil {
		_, _, err := b.db.SessionCreate(b.ctx, session.Session{ID: b.id, Agent: demo.Name}, nil, session.Idempotency{})
		require.Equal(t, failure.IllegalState, failure.CodeOf(err), "error: %v", err)
	}
}

// plant makes a session with the given words in all of its texts: it was hibernated and restored, and has a running turn, a queued
// prompt, and an image whose ID was lost.
func (b *harness) plant(t *testing.T, words string) {
	t.Helper()
	s, _, err := b.db.SessionCreate(b.ctx, session.Session{
		ID: session.NewID(session.SessionPrefix), Agent: demo.Name, Lazy: true, Title: words, Metadata: json.RawMessage(`{"k":"` + words + `"}`),
		Workspace: &session.Workspace{RepoURL: "https://example.org/" + words},
	}, nil, session.Idempotency{Key: words, Digest: "d"})
	require.NoError(t, err)
	b.id = s.ID
	first := b.create(t)
	b.transit(t, session.EventReady)
	require.NoError(t, b.driver.WriteFile(b.ctx, first.SandboxID, "/work/file", []byte(words), 0o644))
	b.transit(t, session.EventHibernate)
	_, err = b.save(first)
	require.NoError(t, err)
	b.terminate(t, first)
	b.transit(t, session.EventSaved)
	b.transit(t, session.EventWake)
	second, err := b.restore(2)
	require.NoError(t, err)
	b.transit(t, session.EventReady)
	in := b.claim(t, second, words)
	_, err = b.db.RunAttach(b.ctx, in.RunID, "t", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	block := `{"block":{"id":"b","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z","content":"` + words + `"}}`
	verdicts, err := b.db.EventsAppend(b.ctx, []eventlog.Append{{
		SessionID: b.id, RunID: in.RunID, Generation: 2, Token: "t", LastFrame: 2, State: []byte(words),
		Events: []eventlog.Draft{
			{Type: "block_start", ConversationID: "main", At: time.Now(), Data: json.RawMessage(block)},
			{Type: "error", ConversationID: words, Frame: 1, Data: json.RawMessage(`{"message":"` + words + `"}`)},
		},
		Questions: []eventlog.Question{{Frame: 2, Asked: question.Asked{ID: words, Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"` + words + `"}`)}}},
	}})
	require.NoError(t, errors.Join(append(verdicts, err)...))
	require.NoError(t, b.db.TranscriptAppend(b.ctx, []transcript.Segment{{SessionID: b.id, Path: "/" + words, Version: 1, RunID: in.RunID, Data: []byte(words)}}))
	_, _, _, err = b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: words})
	require.NoError(t, err)
	require.NoError(t, b.db.ImageIntend(b.ctx, image.Intent{ID: session.NewID("img_"), SessionID: b.id, Generation: 2, Source: second.SandboxID}))
	_, err = b.driver.Snapshot(b.ctx, second.SandboxID, time.Minute)
	require.NoError(t, err)
	_, err = b.db.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
}

// tablesWith lists the tables that contain the given words.
func (b *harness) tablesWith(t *testing.T, words string) (found []string) {
	t.Helper()
	var tables []string
	b.query(t, &tables, "SELECT array_agg(table_name::text) FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'")
	require.Contains(t, tables, "event_log")
	for _, table := range tables {
		var has bool
		b.query(t, &has, fmt.Sprintf("SELECT EXISTS (SELECT FROM %s r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, encode($1::bytea, 'hex')) > 0)", table), words)
		if has {
			found = append(found, table)
		}
	}
	return found
}

// requireErased checks that only the ID of the harness's session is left, in purges.
func (b *harness) requireErased(t *testing.T, e *engine, words string) {
	t.Helper()
	require.Empty(t, b.tablesWith(t, words))
	require.Equal(t, []string{"purges"}, b.tablesWith(t, b.id))
	require.Empty(t, b.images(t))
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Empty(t, listed)
	require.Zero(t, e.left(b.id))
}

// newEngine returns an engine whose workflows terminate their session at the stop signal.
func (b *harness) newEngine(t *testing.T) *engine {
	t.Helper()
	return &engine{runs: map[string]int{}, stop: func(id string) {
		s, err := b.db.SessionOpen(b.ctx, id, session.NewID("run_"))
		if err != nil || s.Status.Final() {
			return
		}
		for _, row := range b.sandboxes(t, id) {
			b.terminate(t, activities.SandboxReady{Generation: row.Generation, SandboxID: row.SandboxID})
		}
		b.transit(t, session.EventStop)
	}}
}

func (b *harness) sandboxes(t *testing.T, id string) []session.SandboxRow {
	t.Helper()
	rows, err := b.db.SandboxesOpen(b.ctx, id)
	require.NoError(t, err)
	return rows
}

// purgeStride is the distance between the steps that have a fault, unless all of them have.
const purgeStride = 60

var allFaults = flag.Bool("all-faults", false, "have a fault in every step of a purge, instead of some that are selected at random")

// TestPurgeIsCompletedAfterWorkerKill kills the worker of a purge at steps of it, one in each purge, and has another worker
// complete the purge.
func TestPurgeIsCompletedAfterWorkerKill(t *testing.T) {
	t.Parallel()
	testPurgeSteps(t, kills)
}

// TestPurgeIsCompletedAfterLostResponse lets steps of a purge fail, one in each purge, although they had their effect.
func TestPurgeIsCompletedAfterLostResponse(t *testing.T) {
	t.Parallel()
	testPurgeSteps(t, loses)
}

// TestPurgeIsCompletedAfterWorkerFreeze freezes the worker of a purge at steps of it, one in each purge, has another worker
// complete the purge, and lets the first one continue.
func TestPurgeIsCompletedAfterWorkerFreeze(t *testing.T) {
	t.Parallel()
	testPurgeSteps(t, freezes)
}

// TestPurgeIsCompletedAfterOutageOfPostgres starts an outage of Postgres at steps of a purge,
// one in each purge, that lasts for many passes. The same worker completes the purge when Postgres
// is back.
func TestPurgeIsCompletedAfterOutageOfPostgres(t *testing.T) {
	t.Parallel()
	testPurgeSteps(t, missesPostgres)
}

// TestPurgeIsCompletedAfterOutageOfProvider starts an outage of the provider at steps of a
// purge, one in each purge, that lasts for many passes. Meanwhile the session does not count as
// erased if the provider has any of its data.
func TestPurgeIsCompletedAfterOutageOfProvider(t *testing.T) {
	t.Parallel()
	testPurgeSteps(t, missesProvider)
}

func testPurgeSteps(t *testing.T, fault stepFault) {
	b := setupMemory(t)
	b.memory.Handle("sh", func(context.Context, *memsandbox.Proc) int { return 0 }) // clones the repository
	e := b.newEngine(t)
	at, stride := 1, 1
	if !*allFaults {
		at, stride = 1+rand.IntN(purgeStride), purgeStride
	}
	for ; ; at += stride {
		words := fmt.Sprintf("planted%dwords", at)
		b.plant(t, words)
		p := b.purging(t, e, at, fault)
		if fault == freezes {
			b.purgeFrozen(t, e, p)
		} else if fault == missesPostgres || fault == missesProvider {
			b.purgeOutage(t, p)
		} else if erased := b.purge(t, p); !erased {
			successor := b.purging(t, e, 0, fault)
			require.True(t, b.purge(t, successor), "killed at step %d: %s", at, p.steps[at-1])
			successor.close()
		}
		p.close()
		b.requireErased(t, e, words)
		if len(p.steps) < at {
			require.Greater(t, at, 40, "steps: %v", p.steps)
			t.Logf("%d steps: %v", len(p.steps), p.steps)
			return
		}
	}
}

// outagePasses is how many passes an outage lasts. A worker makes one a second; a purge that fails is due again after a pause that grows
// to a minute, which the test skips.
const outagePasses = 12

// purgeOutage lets a process erase the session of the harness, during the outage that begins at one
// of its steps and after it.
func (b *harness) purgeOutage(t *testing.T, p *purging) {
	t.Helper()
	for range 50 { // until the outage
		b.due(t)
		err := p.purger.Pass(p.ctx)
		if p.missing() != noPart {
			break
		}
		require.NoError(t, err)
		if b.purgeState(t) == purge.Erased {
			return
		}
	}
	missing := p.missing()
	require.NotEqual(t, noPart, missing, "the purge makes no progress; steps: %v", p.steps)
	reached := b.purgeState(t)
	for range outagePasses {
		b.due(t)
		err := p.purger.Pass(p.ctx)
		state := b.purgeState(t)
		b.visible(t, state)
		if missing == ofPostgres {
			require.Error(t, err)
			require.Equal(t, reached, state)
		}
		if left, err := driver.Collect(b.provider.List(b.ctx)); err != nil || len(left)+len(b.images(t)) > 0 {
			require.NoError(t, err)
			require.Contains(t, []purge.State{purge.Stopping, purge.Erasing}, state, "the provider has something of the session")
		}
	}
	p.back()
	require.True(t, b.purge(t, p), "away from step %d on", p.at)
}

// purgeFrozen freezes a process at a step of the erasure of the harness's session, lets a second
// one complete it, and then lets the first one continue.
func (b *harness) purgeFrozen(t *testing.T, e *engine, p *purging) {
	t.Helper()
	passed := make(chan error, 1)
	pass := func() bool { // whether it is frozen
		b.due(t)
		go func() { passed <- p.purger.Pass(p.ctx) }()
		select {
		case <-p.frozen:
			return true
		case err := <-passed:
			require.NoError(t, err)
			return false
		}
	}
	for !pass() {
		if b.purgeState(t) == purge.Erased {
			return
		}
	}
	successor := b.purging(t, e, 0, freezes)
	require.True(t, b.purge(t, successor), "frozen at step %d", p.at)
	close(p.thawed)
	if err := <-passed; err != nil { // the session is erased, or Postgres has aborted the transaction
		t.Logf("frozen at step %d: %v", p.at, err)
	}
	require.NotEqual(t, purge.Stopping, b.purgeState(t))
	b.visible(t, b.purgeState(t))
	require.True(t, b.purge(t, successor), "the writes of a delayed step are erased")
	successor.close()
}

func (b *harness) purgeState(t *testing.T) (state purge.State) {
	t.Helper()
	b.query(t, &state, "SELECT state FROM purges WHERE session_id = $1", b.id)
	return state
}
