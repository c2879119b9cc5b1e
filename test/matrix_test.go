package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var (
	matrixAll  = flag.Bool("all-faults", false, "inject every fault of the matrix, instead of the two of the short form")
	matrixOnly = flag.String("fault", "", "inject only the faults of the matrix whose name this regular expression matches")
)

// TestEveryFaultInEveryState injects one fault at a time while sessions are in every state. Each
// short-lived state has several sessions, which enter it at different moments. Each prompt ends by
// itself within settleWithin of the end of the fault, and runs once.
//
//	a round   sessions are prepared ─▶ each enters its state so that it is there ─▶ the fault, and a prompt
//	          to each session meanwhile ─▶ every prompt ends ─▶ audit ─▶ stop
//
// A run of all tests injects two of the faults, always the same, in fewer sessions; -all-faults
// injects all.
func TestEveryFaultInEveryState(t *testing.T) { //nolint:tparallel // one fault after the other, all of one system
	t.Parallel()
	seed := chosenSeed(*matrixAll || *matrixOnly != "")
	t.Logf("seed: -seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	r := startWholeRig(t, 1)
	m := &matrix{rig: r, rng: rng, apart: newProxy(t, r.dialPostgres)}
	m.addWorker(t, m.apart)
	faults := m.faults()
	switch {
	case *matrixOnly != "":
		only := regexp.MustCompile(*matrixOnly)
		faults = slices.DeleteFunc(faults, func(f matrixFault) bool { return !only.MatchString(f.name) })
		require.NotEmpty(t, faults, "no fault matches %q", *matrixOnly)
	case !*matrixAll:
		faults = slices.DeleteFunc(faults, func(f matrixFault) bool { return !f.short })
		m.short = true
	}
	for _, f := range faults { //nolint:paralleltest // see above
		t.Run(f.name, func(t *testing.T) { m.round(t, f) })
	}
	m.nothingIsLeft(t, settleWithin)
}

type matrix struct {
	*rig
	apart *proxy // between Postgres and the second worker alone
	rng   *rand.Rand
	short bool // fewer sessions
}

// matrixFault is a fault that lasts until strike returns.
type matrixFault struct {
	name   string
	strike func(t *testing.T, cells []*cell)
	// losesSandboxes is set if turns that run when the fault begins may end as unknown.
	losesSandboxes bool
	// named is the code of the cause that explains the prompt that was being processed when the
	// fault began. It is empty if the fault may leave a turn unaffected.
	named string
	// during has codes, or "http CODE" for a refused explanation. At least one of them must explain
	// a prompt during the fault or afterwards. It is empty if the fault delays no prompt for long.
	during []string
	// short faults are those of the short form: of a part that ends, and of one that hangs.
	short bool
	// states replaces matrixStates.
	states []matrixState
}

func (m *matrix) faults() []matrixFault {
	frozen := func(p part, d time.Duration) func(*testing.T, []*cell) {
		return func(*testing.T, []*cell) { freeze(m.pids(p), d) }
	}
	killed := func(p part) func(*testing.T, []*cell) {
		return func(*testing.T, []*cell) { kill(m.pids(p)) }
	}
	return []matrixFault{
		{name: "workers frozen for 10s", short: true, strike: frozen(partWorker, 10*time.Second), during: []string{"no_worker", "worker_silent", "worker_lost"}},
		{name: "workers killed", strike: killed(partWorker), named: "worker_lost", during: []string{"worker_lost"}},
		{name: "api killed", strike: killed(partAPI)},
		{name: "Postgres refused for 20s", strike: func(t *testing.T, _ []*cell) { m.links(func(p *proxy) { p.refuse(t, 20*time.Second) }) }, during: []string{"http unavailable", "database_unavailable"}},
		{name: "Postgres frozen for 20s", strike: frozen(partPostgres, 20*time.Second), during: []string{"http unavailable", "database_unavailable"}},
		{name: "Temporal frozen for 20s", strike: frozen(partTemporal, 20*time.Second), during: []string{"temporal_unavailable"}},
		{name: "Temporal killed", strike: killed(partTemporal)},
		{name: "local Modal killed", short: true, strike: killed(partLocalModal), losesSandboxes: true, named: "sandbox_lost", during: []string{"sandbox_lost", "provider_unavailable"}},
		{name: "local Modal frozen for 15s", strike: frozen(partLocalModal, 15*time.Second), during: []string{"step_slow", "provider_unavailable"}},
		{name: "runners frozen for 20s", strike: frozen(partRunner, 20*time.Second), during: []string{"runner_unreachable", "sandbox_unhealthy"}},
		{name: "rows locked for 20s", strike: func(t *testing.T, cells []*cell) { m.lockRows(t, cells, 20*time.Second) }, during: []string{"session_locked", "database_unavailable"}},
		{
			name: "local Modal killed in snapshots", strike: killed(partLocalModal), losesSandboxes: true,
			states: []matrixState{{stateLarge, 0, 1500 * time.Millisecond, 15}},
		},
		{name: "runners frozen for 80s", strike: frozen(partRunner, 80*time.Second)},
		{name: "links killed", strike: killed(partAttach)},
		{name: "runners killed", strike: killed(partRunner), losesSandboxes: true, named: "sandbox_lost"},
		{name: "tables locked for 20s", strike: func(t *testing.T, _ []*cell) { m.lockTables(t, 20*time.Second) }},
		{name: "connections used up for 20s", strike: func(t *testing.T, _ []*cell) { m.useUpConnections(t, 20*time.Second) }},
		{name: "api frozen for 30s", strike: frozen(partAPI, 30*time.Second)},
		{name: "agents and links frozen for 30s", strike: func(*testing.T, []*cell) {
			freeze(append(m.pids(partAgent), m.pids(partAttach)...), 30*time.Second)
		}},
		{name: "local Modal frozen for 2m", strike: frozen(partLocalModal, 2*time.Minute)},
		{name: "Postgres refused for 3m", strike: func(t *testing.T, _ []*cell) { m.links(func(p *proxy) { p.refuse(t, 3*time.Minute) }) }},
		{name: "workers killed again and again", strike: func(*testing.T, []*cell) { m.killAgain(partWorker, 10, 4*time.Second) }},
		{name: "Temporal killed again and again", strike: func(*testing.T, []*cell) { m.killAgain(partTemporal, 10, 4*time.Second) }},
		{name: "workers frozen for 40s", strike: frozen(partWorker, 40*time.Second), named: "worker_lost"},
		{name: "Postgres 300ms late for 2m", strike: func(*testing.T, []*cell) { m.links(func(p *proxy) { p.slow(300*time.Millisecond, 2*time.Minute) }) }},
		{name: "Temporal refused for 3m", strike: func(t *testing.T, _ []*cell) { m.engine.refuse(t, 3*time.Minute) }},
		{name: "Temporal silent for 40s", strike: func(*testing.T, []*cell) { m.engine.stall(40 * time.Second) }},
		{name: "Temporal 2s late for 1m", strike: func(*testing.T, []*cell) { m.engine.slow(2*time.Second, time.Minute) }},
		{name: "Postgres silent for 40s", strike: func(*testing.T, []*cell) { m.links(func(p *proxy) { p.stall(40 * time.Second) }) }},
		{name: "Postgres refused for 1m to one worker", strike: func(t *testing.T, _ []*cell) { m.apart.refuse(t, time.Minute) }},
		{name: "Postgres silent for 1m to one worker", strike: func(*testing.T, []*cell) { m.apart.stall(time.Minute) }},
		{name: "Postgres read-only for 30s", strike: func(t *testing.T, _ []*cell) { m.readOnly(t, 30*time.Second) }},
		{name: "Postgres recovers from a crash again and again", strike: func(t *testing.T, _ []*cell) { m.crashPostgres(t, 4, 5*time.Second) }},
		{name: "statements canceled for 20s", strike: func(t *testing.T, _ []*cell) { m.disturb(t, "pg_cancel_backend", 20*time.Second) }},
		{name: "backends terminated for 20s", strike: func(t *testing.T, _ []*cell) { m.disturb(t, "pg_terminate_backend", 20*time.Second) }},
		{name: "files of workers used up for 30s", strike: func(t *testing.T, _ []*cell) { useUpFiles(t, m.pids(partWorker), 30*time.Second) }},
		{name: "files of the api used up for 30s", strike: func(t *testing.T, _ []*cell) { useUpFiles(t, m.pids(partAPI), 30*time.Second) }},
		{name: "files of local Modal used up for 30s", strike: func(t *testing.T, _ []*cell) { useUpFiles(t, m.pids(partLocalModal), 30*time.Second) }},
		{name: "inits frozen for 30s", strike: frozen(partInit, 30*time.Second)},
		{name: "everything frozen for 30s", strike: func(*testing.T, []*cell) {
			var all []int
			for _, p := range []part{partAPI, partWorker, partLocalModal, partTemporal, partPostgres, partInit, partRunner, partAgent, partAttach} {
				all = append(all, m.pids(p)...)
			}
			freeze(all, 30*time.Second)
		}},
		{name: "local Modal stutters for 1m", strike: func(*testing.T, []*cell) { m.stutter(time.Minute, partLocalModal) }},
		{name: "everything but sandboxes stutters for 1m", strike: func(*testing.T, []*cell) {
			m.stutter(time.Minute, partAPI, partWorker, partLocalModal, partTemporal, partPostgres)
		}},
		{name: "Postgres and Temporal refused, workers killed", strike: func(t *testing.T, _ []*cell) {
			var both sync.WaitGroup
			both.Go(func() { m.links(func(p *proxy) { p.refuse(t, 30*time.Second) }) })
			both.Go(func() { m.engine.refuse(t, 40*time.Second) })
			<-time.After(10 * time.Second)
			kill(m.pids(partWorker))
			both.Wait()
		}},
	}
}

// links calls fail for every link to Postgres concurrently.
func (m *matrix) links(fail func(p *proxy)) {
	var all sync.WaitGroup
	for _, p := range []*proxy{m.database, m.apart} {
		all.Go(func() { fail(p) })
	}
	all.Wait()
}

// readOnly makes Postgres refuse all writes for d, as after a fail-over to a standby.
func (m *matrix) readOnly(t *testing.T, d time.Duration) {
	t.Helper()
	conn := m.connect(t)
	for _, value := range []string{"on", "off"} {
		_, err := conn.Exec(t.Context(), "SET default_transaction_read_only = off")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = "+value)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SELECT pg_reload_conf()")
		require.NoError(t, err)
		if value == "on" {
			<-time.After(d)
		}
	}
}

// crashPostgres kills one backend a number of times; each time Postgres ends all backends and
// recovers.
func (m *matrix) crashPostgres(t *testing.T, times int, pause time.Duration) {
	t.Helper()
	for range times {
		var pid int
		eventually(t, settleWithin, "a backend can be killed", func() error {
			conn, err := pgx.Connect(t.Context(), m.postgres.url)
			if err != nil {
				return err
			}
			defer conn.Close(t.Context())
			return conn.QueryRow(t.Context(),
				"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1").Scan(&pid)
		})
		kill([]int{pid})
		<-time.After(pause)
	}
}

// disturb calls a function of Postgres on every backend but its own, ten times a second for d.
func (m *matrix) disturb(t *testing.T, function string, d time.Duration) {
	t.Helper()
	conn := m.connect(t)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for timeout := time.After(d); ; {
		_, err := conn.Exec(t.Context(), "SELECT "+function+`(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		require.NoError(t, err)
		select {
		case <-ticker.C:
		case <-timeout:
			return
		}
	}
}

// stutter lets parts run for a tenth of each second of d, as on an overcommitted host.
func (m *matrix) stutter(d time.Duration, parts ...part) {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		var pids []int
		for _, p := range parts {
			pids = append(pids, m.pids(p)...)
		}
		freeze(pids, 900*time.Millisecond)
	}
}

// killAgain kills a part repeatedly, with pauses.
func (m *matrix) killAgain(p part, times int, pause time.Duration) {
	for range times {
		kill(m.pids(p))
		<-time.After(pause)
	}
}

// lockRows locks the rows of all sessions for d, like a program that updates the table.
func (m *matrix) lockRows(t *testing.T, cells []*cell, d time.Duration) {
	t.Helper()
	var ids []string
	for _, c := range cells {
		ids = append(ids, c.id)
	}
	tx, err := m.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE", ids)
	require.NoError(t, err)
	<-time.After(d)
	require.NoError(t, tx.Rollback(t.Context()))
}

// lockTables locks whole tables for d, as a migration by hand or a vacuum would.
func (m *matrix) lockTables(t *testing.T, d time.Duration) {
	t.Helper()
	conn := m.connect(t)
	var tx pgx.Tx
	eventually(t, settleWithin, "the tables are locked", func() (err error) { // it may be the victim of a deadlock
		if tx, err = conn.Begin(t.Context()); err != nil {
			return err
		}
		if _, err = tx.Exec(t.Context(), "LOCK TABLE prompts, runs, events, bundles, sandboxes IN ACCESS EXCLUSIVE MODE"); err != nil {
			return errors.Join(err, tx.Rollback(t.Context()))
		}
		return nil
	})
	<-time.After(d)
	require.NoError(t, tx.Rollback(t.Context()))
}

// useUpConnections breaks every connection of the system and occupies all connections of Postgres
// for d.
func (m *matrix) useUpConnections(t *testing.T, d time.Duration) {
	t.Helper()
	var taken []*pgx.Conn
	m.links(func(p *proxy) { p.reset() })
	for timeout := time.After(d); ; {
		conn, err := pgx.Connect(t.Context(), m.postgres.url)
		if err == nil {
			taken = append(taken, conn)
			continue
		}
		select {
		case <-time.After(100 * time.Millisecond): // a connection may have become free
			continue
		case <-timeout:
		}
		break
	}
	for _, conn := range taken {
		conn.Close(t.Context())
	}
}

// cell is a session that is in a certain state when the fault begins.
type cell struct {
	*subject
	state string
	lead  time.Duration // the time before the fault at which the session enters its state
	setup string        // the name under which its setup script is counted
	found string        // its status when the fault began
	took  time.Duration // from the end of the fault until its last prompt had ended
}

type matrixState struct {
	name        string
	least, most time.Duration
	sessions    int
}

// stateLarge is the state of a session that hibernates with a workspace that takes long to save.
const stateLarge = "hibernating with files"

// matrixStates are the states of sessions. For short-lived states, they have the range of moments
// before the fault at which sessions enter them; the others are entered in advance.
var matrixStates = []matrixState{
	{name: "error", sessions: 1},
	{name: "idle", sessions: 1},
	{name: "hibernated", sessions: 1},
	{name: "in a setup script", sessions: 1},
	{name: "in the middle of a turn", sessions: 1},
	{"at the end of a turn", 1100 * time.Millisecond, 1800 * time.Millisecond, 2},
	{"initializing", 0, 600 * time.Millisecond, 2},
	{"hibernating", 0, 600 * time.Millisecond, 3},
	{"restoring", 0, 600 * time.Millisecond, 3},
	{"at the start of a turn", 0, 150 * time.Millisecond, 3},
}

// round puts sessions into their states and injects a fault.
func (m *matrix) round(t *testing.T, f matrixFault) {
	var cells []*cell
	states := f.states
	if states == nil {
		states = matrixStates
	}
	for _, state := range states {
		n := state.sessions
		if m.short {
			n = (n + 1) / 2
		}
		for i := range n {
			// The moments are spread over the range, at a random place in each part of it.
			lead := state.least
			if part := (state.most - state.least) / time.Duration(n); part > 0 {
				lead += time.Duration(i)*part + time.Duration(m.rng.Int64N(int64(part)))
			}
			cells = append(cells, &cell{state: state.name, lead: lead})
		}
	}
	m.prepare(t, cells)
	var entering, sending sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	at := time.Now().Add(2 * time.Second)
	for _, c := range cells {
		entering.Go(func() {
			<-time.After(time.Until(at.Add(-c.lead)))
			c.enter(ctx)
		})
	}
	<-time.After(time.Until(at))
	m.note(t, cells)
	for i, c := range cells {
		sending.Go(func() {
			<-time.After(time.Duration(i) * 50 * time.Millisecond)
			if c.state == "in a setup script" {
				defer m.hits.answer(c.setup+"-end", true)
			}
			if c.state != "error" { // refuses prompts
				c.send(ctx, "during", []string{"", "retry"}[i%2])
			}
		})
	}
	saw := m.newWitness()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var witnesses sync.WaitGroup
	pause := 100 * time.Millisecond
	if m.short { // its explanations are not compared
		pause = time.Second
	}
	for i := range 3 { // an answer may take seconds
		var ids []string
		for j, c := range cells {
			if j%3 == i {
				ids = append(ids, c.id)
			}
		}
		witnesses.Go(func() { saw.watch(watching, ids, pause) })
	}
	f.strike(t, cells)
	until := time.Now()
	entering.Wait()
	sending.Wait()
	m.settle(t, cells, until)
	stop()
	witnesses.Wait()
	m.check(t, f, cells)
	for _, c := range cells {
		for _, p := range c.prompts {
			saw.ask(t.Context(), c.id, p.id)
		}
	}
	if m.short { // hardly any session is delayed
		f.during = nil
	}
	saw.named(t, f.during)
}

// prepare creates the sessions in advance, up to the point where they enter their states.
func (m *matrix) prepare(t *testing.T, cells []*cell) {
	t.Helper()
	for _, c := range cells {
		switch c.state {
		case "error":
			c.setup = "setup-error-" + fmt.Sprint(m.rng.Uint32())
			m.hits.answer(c.setup, false)
			c.subject = m.newSubject(t, object{"workspace": object{"setup": m.hits.command(c.setup)}})
		case "initializing": // created lazily: the prompt begins it
			c.subject = m.newSubject(t, object{"sandbox": "lazy"})
		case "in a setup script":
			c.setup = "setup-" + fmt.Sprint(m.rng.Uint32())
			c.subject = m.newSubject(t, object{"workspace": object{
				"setup": m.hits.command(c.setup) + " && until " + m.hits.command(c.setup+"-end") + "; do sleep 0.3; done",
			}})
			m.hits.answer(c.setup+"-end", false)
			c.send(t.Context(), "first", "")
			continue
		default:
			c.subject = m.newSubject(t, nil)
		}
		switch c.state {
		case "initializing":
		case stateLarge:
			c.send(t.Context(), "first", "", "$ mkdir d; for i in $(seq 400); do head -c 100000 /dev/urandom > d/$i; done")
		default:
			c.send(t.Context(), "first", "")
		}
	}
	for _, c := range cells {
		switch c.state {
		case "initializing", "in a setup script":
		case "error":
			c.waitStatus(t, c.id, "error", settleWithin)
		default:
			require.Equal(t, "completed", c.waitPrompt(t, c.id, "first", settleWithin)["status"])
		}
		if c.state == "hibernated" || c.state == "restoring" {
			require.Less(t, c.order("POST", "hibernate", nil), 300)
		}
		if c.state == "in the middle of a turn" {
			c.send(t.Context(), "middle", "", "slow 200ms: "+strings.Repeat("word ", 40))
		}
	}
	for _, c := range cells {
		switch c.state {
		case "hibernated", "restoring":
			c.waitStatus(t, c.id, "hibernated", settleWithin)
		case "in a setup script":
			m.hits.wait(t, c.setup, settleWithin)
		case "in the middle of a turn":
			m.hits.wait(t, c.name("middle"), settleWithin)
		}
	}
}

// enter puts a session into a short-lived state.
func (c *cell) enter(ctx context.Context) {
	switch c.state {
	case "at the end of a turn":
		c.send(ctx, "entered", "", "sleep 1s")
	case "initializing", "restoring", "at the start of a turn":
		c.send(ctx, "entered", "")
	case "hibernating", stateLarge:
		c.order("POST", "hibernate", nil)
	}
}

// note records the status of each session when the fault begins.
func (m *matrix) note(t *testing.T, cells []*cell) {
	t.Helper()
	rows, err := m.connect(t).Query(t.Context(), `SELECT s.id,
		s.status || CASE WHEN EXISTS (SELECT FROM runs r WHERE r.session_id = s.id AND r.outcome = '') THEN ', in a turn' ELSE '' END FROM sessions s`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, status string
		require.NoError(t, rows.Scan(&id, &status))
		for _, c := range cells {
			if c.id == id {
				c.found = status
			}
		}
	}
	require.NoError(t, rows.Err())
}

// settle waits until all prompts have ended. The client intervenes only to recover the session in
// error.
func (m *matrix) settle(t *testing.T, cells []*cell, until time.Time) {
	t.Helper()
	var settling sync.WaitGroup
	errs := make([]error, len(cells))
	for i, c := range cells {
		settling.Go(func() {
			ticker := time.NewTicker(250 * time.Millisecond)
			defer ticker.Stop()
			c.senders.Wait()
			if c.state == "error" {
				m.hits.answer(c.setup, true)
			}
			for {
				if c.state == "error" {
					c.recoverFromError()
				}
				if errs[i] = c.unsettled(false); errs[i] == nil || time.Since(until) > settleWithin {
					c.took = time.Since(until)
					return
				}
				<-ticker.C
			}
		})
	}
	settling.Wait()
	for i, c := range cells {
		t.Logf("%-24s %6s before the fault: %-24s %s, settled after %s", c.state, c.lead.Round(time.Millisecond), c.found, c.id, c.took.Round(100*time.Millisecond))
		if errs[i] != nil {
			t.Errorf("%s (%s) has not settled within %s: %v", c.id, c.state, settleWithin, errs[i])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// check audits the sessions, and stops them.
func (m *matrix) check(t *testing.T, f matrixFault, cells []*cell) {
	t.Helper()
	var subjects []*subject
	for _, c := range cells {
		subjects = append(subjects, c.subject)
		for _, p := range c.prompts {
			got := c.waitPrompt(t, c.id, p.id, time.Second)
			lost := f.losesSandboxes && p.onUnknown == "" && got["status"] == "unknown"
			if got["status"] != "completed" && !lost {
				t.Errorf("%s (%s): prompt %s ended %v (%v)", c.id, c.state, p.id, got["status"], got["reason"])
			}
			c.explained(t, c.id, "prompt", p.id, fmt.Sprintf("prompt_%v", got["status"]))
			if c.state == "in the middle of a turn" && p.id == "middle" && f.named != "" {
				c.explained(t, c.id, "prompt", p.id, f.named)
			}
		}
		if n := m.hits.count(c.setup); c.state == "in a setup script" && n != 1 && !f.losesSandboxes {
			t.Errorf("%s: its setup script ran %d times", c.id, n)
		}
	}
	m.finish(t, subjects)
}

// recoverFromError recovers the session as a person would.
func (s *subject) recoverFromError() {
	_, view, err := s.call(http.MethodGet, "/api/sessions/"+s.id, nil)
	if err == nil && view["status"] == "error" {
		s.order(http.MethodPost, "recover", nil)
	}
}
