package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// masterKey is the key of the installation in tests.
var masterKey = []byte("a secret of thirty-two bytes ...")

// waitLimit bounds every wait of a test.
const waitLimit = 2 * time.Minute

// harness has a database with one session, and the activities of one worker.
type harness struct {
	ctx      context.Context
	id       string // the session
	url      string // of the database
	db       *postgres.DB
	steps    *steps
	driver   *faulty
	memory   *memsandbox.Driver // nil if sandboxes are real
	provider *sandbox.Provider
	image    activities.Image
	signals  *signalLog
	config   activities.Config
	links    *turn.Links
	control  *activities.Control
	turns    *activities.Turns

	dispatches atomic.Int64 // allotted to turns

	direct sync.Mutex
	conn   *pgx.Conn // for statements of the test itself; nil until the first
}

// setup uses real sandboxes of the local Modal, with the real runner.
func setup(t *testing.T) *harness {
	t.Helper()
	drv, err := modalsandbox.New(modalsandbox.Config{ServerURL: modal.URL(), TokenID: modal.Token().ID, TokenSecret: secret.NewValue(modal.Token().Secret)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	return newBundle(t, drv)
}

// setupMemory uses sandboxes in memory whose runner answers every command and does nothing.
func setupMemory(t *testing.T) *harness {
	t.Helper()
	drv := memsandbox.New()
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	drv.Handle("overwinter-runner", idleRunner)
	drv.Handle("mkdir", func(context.Context, *memsandbox.Proc) int { return 0 })
	b := newBundle(t, drv)
	b.memory = drv
	b.config.Runner = activities.Runner{} // sandboxes in memory have no runner to replace
	b.build()
	return b
}

func idleRunner(ctx context.Context, p *memsandbox.Proc) int {
	answer := map[string]any{}
	switch p.Args[1] {
	case "serve":
		<-ctx.Done()
		return 0
	case "seal":
		answer["seal"] = runner.Seal{Manifest: manifest.Manifest{Tree: &manifest.Tree{}}}
	case "verify":
		answer["tree"] = manifest.TreeDifference{}
		answer["missing"], answer["mismatched"] = []string{}, []string{}
	}
	if _, err := io.Copy(io.Discard, p.Stdin); err != nil {
		return runner.ExitFailed
	}
	if err := json.NewEncoder(p.Stdout).Encode(answer); err != nil {
		return runner.ExitFailed
	}
	return runner.ExitOK
}

func newBundle(t *testing.T, drv driver.Driver) *harness {
	t.Helper()
	b := &harness{ctx: t.Context(), url: postgrestest.URL(t), driver: &faulty{Driver: drv}, signals: &signalLog{}}
	t.Cleanup(func() {
		if b.conn != nil {
			require.NoError(t, b.conn.Close(context.Background()))
		}
	})
	b.db = postgrestest.Open(t, b.url)
	appender := eventlog.NewAppender(b.db, eventlog.AppenderOptions{})
	appender.Start()
	t.Cleanup(func() { appender.Stop(context.Background()) })
	installation, err := b.db.Installation(b.ctx)
	require.NoError(t, err)
	b.provider = sandbox.NewProvider(b.driver, sandbox.Options{Installation: installation, PollInterval: 200 * time.Millisecond})
	t.Cleanup(func() { b.endSandboxes(t) })
	b.image = runnerImage(b.provider)
	b.steps = &steps{Store: b.db, log: appender, driver: b.driver}
	b.links = turn.NewLinks()
	t.Cleanup(b.links.Close)
	program, err := activities.FindRunner(runnerBinary)
	require.NoError(t, err)
	keys, err := secret.NewKeyring(masterKey)
	require.NoError(t, err)
	b.config = activities.Config{
		Runner: program,
		Links:  b.links, Store: b.steps, Log: logSteps{b.steps}, Agents: agent.NewRegistry(demo.New()), Sandbox: b.provider,
		Image: b.image, Signaler: b.signals, Keys: keys, SandboxTimeout: time.Hour,
		SnapshotTimeout: time.Minute, ConfirmPause: 10 * time.Millisecond, ImageSoon: time.Hour, Logger: slog.New(slog.DiscardHandler),
	}
	b.build()
	b.id = b.session(t)
	return b
}

// build makes the activities again after a change to the configuration.
func (b *harness) build() { b.control, b.turns = activities.New(b.config) }

func (b *harness) endSandboxes(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	b.driver.repair()
	if b.memory != nil {
		return
	}
	listed, err := driver.Collect(b.provider.List(ctx))
	require.NoError(t, err)
	for _, l := range listed {
		require.NoError(t, b.provider.Open(l.ID).Terminate(ctx))
	}
}

// preparer prepares the images of sandboxes.
type preparer struct {
	images *sandbox.Images
	recipe sandbox.Recipe
}

func (p preparer) Prepare(ctx context.Context, _ string) (string, error) {
	return p.images.Prepare(ctx, p.recipe)
}

func runnerImage(p *sandbox.Provider) preparer {
	paths := runner.DefaultPaths()
	return preparer{sandbox.NewImages(p, sandbox.ImagesOptions{}), sandbox.Recipe{
		Name:     "activities-test",
		Files:    []sandbox.RecipeFile{{Path: paths.Binary, Mode: 0o755, Source: runnerBinary}},
		Commands: [][]string{{"mkdir", "-p", paths.Workspace, paths.State, paths.Home}},
	}}
}

func (b *harness) session(t *testing.T) string {
	t.Helper()
	s, _, err := b.db.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: demo.Name, Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	return s.ID
}

// attempt is one attempt at an activity.
type attempt struct {
	ctx  context.Context // cancelled when Temporal revokes the attempt; nil for never
	stop chan struct{}   // closed when the worker stops; nil for never
	beat func()          // called with every heartbeat that reaches Temporal
}

// do runs an activity like Temporal, including the encoding of input, result and error. A turn gets
// a new dispatch each time, unless its request has one.
func do[I, O any](b *harness, a attempt, act func(context.Context, I) (O, error), in I) (O, error) {
	if turn, ok := any(&in).(*activities.TurnRequest); ok && turn.Dispatch == 0 {
		turn.Dispatch = b.dispatches.Add(1)
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&activities.Interceptor{}}})
	if a.stop != nil {
		env.SetWorkerStopChannel(a.stop)
	}
	if a.beat != nil {
		env.SetOnActivityHeartbeatListener(func(*activity.Info, converterValues) { a.beat() })
	}
	wrapped := func(ctx context.Context, in I) (O, error) {
		if a.ctx != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(a.ctx, cancel)()
		}
		return act(ctx, in)
	}
	env.RegisterActivityWithOptions(wrapped, activity.RegisterOptions{Name: "activity"})
	var out O
	value, err := env.ExecuteActivity("activity", in)
	if err != nil {
		return out, err
	}
	return out, value.Get(&out)
}

// plain gives an activity without a result an empty one.
func plain[I any](act func(context.Context, I) error) func(context.Context, I) (struct{}, error) {
	return func(ctx context.Context, in I) (struct{}, error) { return struct{}{}, act(ctx, in) }
}

// create makes the sandbox of the first generation.
func (b *harness) create(t *testing.T) activities.SandboxReady {
	t.Helper()
	ready, err := do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 1})
	require.NoError(t, err)
	return ready
}

func (b *harness) restore(generation int64) (activities.SandboxReady, error) {
	return do(b, attempt{}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: generation})
}

// save makes a bundle of a sandbox.
func (b *harness) save(s activities.SandboxReady) (activities.Saved, error) {
	return do(b, attempt{}, b.control.SaveBundle, b.saveRequest(s))
}

func (b *harness) rescue(s activities.SandboxReady) (activities.Saved, error) {
	return do(b, attempt{}, b.control.RescueBundle, b.saveRequest(s))
}

func (b *harness) saveRequest(s activities.SandboxReady) activities.SaveRequest {
	return activities.SaveRequest{
		SessionID: b.id, Generation: s.Generation, SandboxID: s.SandboxID, BundleID: session.NewID(session.BundlePrefix),
	}
}

func (b *harness) terminate(t *testing.T, s activities.SandboxReady) {
	t.Helper()
	_, err := do(b, attempt{}, plain(b.control.TerminateSandbox), activities.SandboxRef{
		SessionID: b.id, Generation: s.Generation, SandboxID: s.SandboxID, Reason: "test",
	})
	require.NoError(t, err)
}

// awake records that the session is awake, as its workflow does once a sandbox is ready.
func (b *harness) awake(t *testing.T) {
	t.Helper()
	for {
		s, err := b.db.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		event, ok := map[session.State]session.Event{
			session.Initializing: session.EventReady, session.Hibernating: session.EventSaved,
			session.Hibernated: session.EventWake, session.Restoring: session.EventReady, session.Error: session.EventRecover,
		}[s.Status]
		if !ok {
			return
		}
		b.transit(t, event)
	}
}

// claim queues a prompt and claims it for a run in a sandbox.
func (b *harness) claim(t *testing.T, s activities.SandboxReady, content string) activities.TurnRequest {
	t.Helper()
	p, _, _, err := b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: content})
	require.NoError(t, err)
	in := activities.TurnRequest{
		SessionID: b.id, PromptID: p.ID, RunID: session.NewID(session.RunPrefix), Generation: s.Generation, SandboxID: s.SandboxID,
	}
	b.awake(t)
	verdict, err := do(b, attempt{}, b.control.BeginRun, activities.ClaimRequest{
		SessionID: b.id, PromptID: in.PromptID, RunID: in.RunID, Generation: in.Generation,
	})
	require.NoError(t, err)
	require.True(t, verdict.Granted, "verdict: %+v", verdict)
	return in
}

func (b *harness) turn(in activities.TurnRequest) (activities.TurnResult, error) {
	return do(b, attempt{}, b.turns.RunTurn, in)
}

// pending is an attempt in progress.
type pending[O any] struct {
	done   chan struct{} // closed when out and err are set
	out    O
	err    error
	cancel context.CancelFunc
	stop   chan struct{}
}

// begin runs a turn concurrently with the test, whose clean-up ends it.
func (b *harness) begin(t *testing.T, in activities.TurnRequest) *pending[activities.TurnResult] {
	t.Helper()
	return b.beginWith(t, b.turns.RunTurn, in)
}

func (p *pending[O]) wait(t *testing.T) (O, error) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(waitLimit):
		require.FailNow(t, "the attempt does not end")
	}
	return p.out, p.err
}

// say runs a prompt to its completion and returns the agent's text.
func (b *harness) say(t *testing.T, s activities.SandboxReady, content string) string {
	t.Helper()
	in := b.claim(t, s, content)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome, result.Reason)
	return b.output(t, in.RunID)
}

// events returns the log of the session. Its positions are contiguous from 1.
func (b *harness) events(t *testing.T) []eventlog.Event {
	t.Helper()
	var events []eventlog.Event
	for {
		page, err := b.db.EventsPage(b.ctx, b.id, int64(len(events)), 100_000)
		if failure.CodeOf(err) == failure.Unavailable {
			continue // a test has closed connections
		}
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		events = append(events, page...)
	}
	for i, e := range events {
		require.EqualValues(t, i+1, e.Seq)
	}
	return events
}

// of returns the events of a run with the given type.
func (b *harness) of(t *testing.T, runID, kind string) []eventlog.Event {
	t.Helper()
	var out []eventlog.Event
	for _, e := range b.events(t) {
		if e.RunID == runID && e.Type == kind {
			out = append(out, e)
		}
	}
	return out
}

// output returns the text of a run, assembled from its deltas.
func (b *harness) output(t *testing.T, runID string) string {
	t.Helper()
	var text strings.Builder
	for _, e := range b.of(t, runID, "text_delta") {
		var data struct{ Delta string }
		require.NoError(t, json.Unmarshal(e.Data, &data))
		text.WriteString(data.Delta)
	}
	return text.String()
}

// await waits until a run has an event of this type.
func (b *harness) await(t *testing.T, runID, kind string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.of(t, runID, kind)) > 0 }, waitLimit, 5*time.Millisecond, "no %s", kind)
}

func (b *harness) run(t *testing.T, runID string) run.Run {
	t.Helper()
	r, err := b.db.RunGet(b.ctx, runID)
	require.NoError(t, err)
	return r
}

func (b *harness) prompt(t *testing.T, promptID string) session.Prompt {
	t.Helper()
	p, err := b.db.PromptGet(b.ctx, b.id, promptID)
	require.NoError(t, err)
	return p
}

func (b *harness) head(t *testing.T) bundle.Bundle {
	t.Helper()
	head, err := b.db.BundleHead(b.ctx, b.id)
	require.NoError(t, err)
	return head
}

// transit records the next transition of the session.
func (b *harness) transit(t *testing.T, event session.Event) {
	t.Helper()
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	to, err := session.Next(s.Status, event)
	require.NoError(t, err)
	_, err = do(b, attempt{}, plain(b.control.RecordTransition), session.Transition{
		SessionID: b.id, No: s.TransitionNo + 1, From: s.Status, To: to, Event: event, Generation: s.Generation, At: time.Now(),
	})
	require.NoError(t, err)
}

// running reports whether a sandbox runs, according to the provider.
func (b *harness) running(t *testing.T, id string) bool {
	t.Helper()
	status, err := b.provider.Open(id).Poll(b.ctx)
	if sandbox.IsGone(err) {
		return false
	}
	require.NoError(t, err)
	return status.Running
}

// shell runs a command in a sandbox and returns its output.
func (b *harness) shell(t *testing.T, id, script string) string {
	t.Helper()
	result, err := b.provider.Open(id).Run(b.ctx, sandbox.RunSpec{Argv: []string{"sh", "-c", script}, Timeout: waitLimit})
	require.NoError(t, err)
	require.Zero(t, result.Code, "stderr: %s", result.Stderr)
	return string(result.Stdout)
}

// sql executes a statement for which the store has no method, for example one that makes rows old.
func (b *harness) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	b.direct.Lock()
	defer b.direct.Unlock()
	_, err := b.directly(t).Exec(b.ctx, statement, args...)
	require.NoError(t, err)
}

// query reads one value.
func (b *harness) query(t *testing.T, to any, statement string, args ...any) {
	t.Helper()
	b.direct.Lock()
	defer b.direct.Unlock()
	require.NoError(t, b.directly(t).QueryRow(b.ctx, statement, args...).Scan(to))
}

// directly returns the test's own connection to its database. The caller holds b.direct.
func (b *harness) directly(t *testing.T) *pgx.Conn {
	t.Helper()
	if b.conn == nil {
		conn, err := pgx.Connect(b.ctx, b.url)
		require.NoError(t, err)
		b.conn = conn
	}
	return b.conn
}

func requireType(t *testing.T, want string, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, activities.TypeOf(err), "error: %v", err)
}

func execOf(argv ...string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Argv: argv, Timeout: waitLimit}
}

// requirePassing requires an error that Temporal retries.
func requirePassing(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, ok, "error: %v", err)
	require.False(t, app.NonRetryable(), "error: %v", err)
}

// untilFinal retries a turn until it ends or fails with a final error.
func (b *harness) untilFinal(t *testing.T, in activities.TurnRequest, turn *pending[activities.TurnResult]) (activities.TurnResult, error) {
	t.Helper()
	for {
		out, err := turn.wait(t)
		if app, ok := errors.AsType[*temporal.ApplicationError](err); err == nil || ok && app.NonRetryable() {
			return out, err
		}
		turn = b.begin(t, in)
	}
}

func runOf(script string) sandbox.RunSpec {
	return sandbox.RunSpec{Argv: []string{"sh", "-c", script}, Timeout: waitLimit}
}
