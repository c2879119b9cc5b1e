package sessionclient_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
	"github.com/overwinter-dev/overwinter/internal/temporaltest"
)

// waitLimit bounds every wait of a test. It is generous because the tests of all packages share the
// machine.
const waitLimit = 2 * time.Minute

// engine is the Temporal of this package's tests.
var engine client.Client

// queue is the task queue of this package's tests.
var queue = contract.QueuesOf("0123456789abcdef0123456789abcdef").Control

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := temporaltest.Start("../..")
	if err != nil {
		logger.Error("no Temporal for the tests", slog.Any("error", err))
		return 1
	}
	defer server.Stop() //nolint:errcheck // it reports that it was killed
	engine = server.Client()
	w := worker.New(engine, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(stub, workflow.RegisterOptions{Name: contract.WorkflowName})
	if err := w.Start(); err != nil {
		logger.Error("start the worker", slog.Any("error", err))
		return 1
	}
	defer w.Stop()
	return m.Run()
}

// receivedSignal is a signal that the stub received.
type receivedSignal struct {
	Name string
	Arg  json.RawMessage
}

// stub records signals and ends with the signal stop.
func stub(ctx workflow.Context, in contract.WorkflowInput) ([]receivedSignal, error) {
	var got []receivedSignal
	view := contract.StateView{SessionID: in.SessionID, Status: session.Running, Queue: []string{}}
	if err := workflow.SetQueryHandler(ctx, contract.QueryState, func() (contract.StateView, error) { return view, nil }); err != nil {
		return nil, err
	}
	selector := workflow.NewSelector(ctx)
	for _, name := range []string{
		contract.SignalPrompt, contract.SignalCommands, contract.SignalStop, contract.SignalSettings, contract.SignalSandbox,
		contract.SignalAttended,
	} {
		selector.AddReceive(workflow.GetSignalChannel(ctx, name), func(c workflow.ReceiveChannel, _ bool) {
			var arg json.RawMessage
			c.Receive(ctx, &arg)
			got = append(got, receivedSignal{name, arg})
		})
	}
	for len(got) == 0 || got[len(got)-1].Name != contract.SignalStop {
		selector.Select(ctx)
	}
	return got, nil
}

func setup(t *testing.T) (context.Context, *sessionclient.Client, string) {
	t.Helper()
	return t.Context(), sessionclient.New(engine, "default", sessionclient.At(queue)).WithTimeout(waitLimit), session.NewID(session.SessionPrefix)
}

func TestEveryCallReachesWorkflow(t *testing.T) {
	t.Parallel()
	ctx, o, id := setup(t)
	require.NoError(t, o.SignalPrompt(ctx, id, "p1", 7))
	require.NoError(t, o.SignalCommands(ctx, id))
	require.NoError(t, o.SignalAttended(ctx, id, []session.QueuedPrompt{{ID: "p1", Ordinal: 7}, {ID: "p2", Ordinal: 8}}))
	require.NoError(t, o.SignalSettings(ctx, id, time.Minute))
	require.NoError(t, o.SignalSandbox(ctx, id, contract.SandboxSignal{Generation: 3, Reason: "gone"}))
	raw, err := o.State(ctx, id)
	require.NoError(t, err)
	var view contract.StateView
	require.NoError(t, json.Unmarshal(raw, &view))
	require.Equal(t, id, view.SessionID)
	require.Equal(t, session.Running, view.Status)

	require.NoError(t, o.SignalStop(ctx, id))
	var got []receivedSignal
	require.NoError(t, engine.GetWorkflow(ctx, id, "").Get(ctx, &got))
	names := map[string]string{}
	for _, h := range got {
		names[h.Name] = string(h.Arg)
	}
	require.JSONEq(t, `{"prompts":[{"id":"p1","ordinal":7},{"id":"p2","ordinal":8}]}`, names[contract.SignalAttended])
	require.Len(t, names, 6, "%v", names)
	require.Contains(t, names[contract.SignalPrompt], `"promptId":"p1","ordinal":7`)
	require.JSONEq(t, `{"generation":3,"reason":"gone"}`, names[contract.SignalSandbox])
	require.JSONEq(t, `{"idleTimeout":60000000000}`, names[contract.SignalSettings])
}

func TestCallsReportMissingWorkflow(t *testing.T) {
	t.Parallel()
	ctx, o, never := setup(t)
	closed := session.NewID(session.SessionPrefix)
	require.NoError(t, o.SignalStop(ctx, closed))
	require.NoError(t, engine.GetWorkflow(ctx, closed, "").Get(ctx, nil))
	for _, id := range []string{never, closed} {
		_, err := o.State(ctx, id)
		require.Equal(t, failure.NoSession, failure.CodeOf(err), "error: %v", err)
		current, err := o.CurrentRun(ctx, id)
		require.NoError(t, err)
		require.Empty(t, current)
		require.NoError(t, o.SignalSettings(ctx, id, time.Minute))
		require.NoError(t, o.SignalSandbox(ctx, id, contract.SandboxSignal{}))
		require.NoError(t, o.SignalAttended(ctx, id, []session.QueuedPrompt{{ID: "p", Ordinal: 1}}))
	}
	for _, id := range []string{never, closed} {
		revived, err := o.Revive(ctx, backlog.Attended{SessionID: id})
		require.NoError(t, err)
		require.True(t, revived)
		revived, err = o.Revive(ctx, backlog.Attended{SessionID: id})
		require.NoError(t, err)
		require.False(t, revived, "it is open now")
	}
	require.NoError(t, o.SignalStop(ctx, closed))
	require.NoError(t, engine.GetWorkflow(ctx, closed, "").Get(ctx, nil))
	require.NoError(t, o.SignalCommands(ctx, closed), "a completed workflow is started again")
	_, err := o.State(ctx, closed)
	require.NoError(t, err)
	current, err := o.CurrentRun(ctx, closed)
	require.NoError(t, err)
	require.NotEmpty(t, current)
}

// TestReviveMakesWorkflowReadItsSessionAgain checks that a workflow is signaled if another run of
// it has opened the session, as before a reset, and that a workflow of an earlier version whose
// session is in error is replaced.
func TestReviveMakesWorkflowReadItsSessionAgain(t *testing.T) {
	t.Parallel()
	ctx, o, id := setup(t)
	require.NoError(t, o.SignalCommands(ctx, id))
	first, err := o.CurrentRun(ctx, id)
	require.NoError(t, err)
	for _, c := range []struct {
		attended backlog.Attended
		revived  bool
	}{
		{backlog.Attended{Status: session.Running}, false},
		{backlog.Attended{Status: session.Running, WorkflowRun: first}, false},
		{backlog.Attended{Status: session.Error, WorkflowRun: first}, false},
		{backlog.Attended{Status: session.Running, WorkflowRun: "before a reset"}, true},
		{backlog.Attended{Status: session.Error, WorkflowRun: "before a reset"}, true},
	} {
		c.attended.SessionID = id
		revived, err := o.Revive(ctx, c.attended)
		require.NoError(t, err)
		require.Equal(t, c.revived, revived, "%+v", c.attended)
		current, err := o.CurrentRun(ctx, id)
		require.NoError(t, err)
		require.Equal(t, first, current)
	}
	revived, err := o.Revive(ctx, backlog.Attended{SessionID: id, Status: session.Error})
	require.NoError(t, err)
	require.True(t, revived)
	current, err := o.CurrentRun(ctx, id)
	require.NoError(t, err)
	require.NotEmpty(t, current)
	require.NotEqual(t, first, current)
	require.NoError(t, o.SignalStop(ctx, id))
}

func TestUnresponsiveTemporalIsUnavailable(t *testing.T) {
	t.Parallel()
	hangs, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // connections are not accepted
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hangs.Close()) })
	var left atomic.Int64 // the longest timeout of any call
	look := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		given := time.Hour
		if deadline, ok := ctx.Deadline(); ok {
			given = time.Until(deadline)
		}
		for most := left.Load(); int64(given) > most && !left.CompareAndSwap(most, int64(given)); most = left.Load() {
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: hangs.Addr().String(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(look)}},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	const timeout = 300 * time.Millisecond
	ctx, o, id := t.Context(), sessionclient.New(c, "default", sessionclient.At(queue)).WithTimeout(timeout), session.NewID(session.SessionPrefix)
	t.Cleanup(func() {
		require.Positive(t, left.Load())
		require.LessOrEqual(t, time.Duration(left.Load()), timeout)
	})
	for name, call := range map[string]func() error{
		"ping":     func() error { return o.Ping(ctx) },
		"prompt":   func() error { return o.SignalPrompt(ctx, id, "p", 1) },
		"stop":     func() error { return o.SignalStop(ctx, id) },
		"commands": func() error { return o.SignalCommands(ctx, id) },
		"settings": func() error { return o.SignalSettings(ctx, id, time.Minute) },
		"state":    func() error { _, err := o.State(ctx, id); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, failure.Unavailable, failure.CodeOf(call()))
		})
	}
}

func TestPingAnswers(t *testing.T) {
	t.Parallel()
	ctx, o, _ := setup(t)
	require.NoError(t, o.Ping(ctx))
	require.Equal(t, failure.Unavailable, failure.CodeOf(sessionclient.New(engine, "nowhere", sessionclient.At(queue)).WithTimeout(waitLimit).Ping(ctx)))
}
