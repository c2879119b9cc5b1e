package workflows_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/workflows"
)

// recordedQueues are the queues of the installation whose histories are recorded.
var recordedQueues = contract.QueuesOf("")

var record = flag.Bool("record", false, "run the recorded paths again on bin/overwinter-temporal and write their histories")

// TestRecord writes testdata/histories from real runs of the engine, a worker and the fake
// activities in real time. Build the engine first: make build.
func TestRecord(t *testing.T) { //nolint:paralleltest // it sets the cache of this process
	if !*record {
		t.Skip("histories are recorded with -record only")
	}
	// Without a cache there is no sticky queue, whose name would contain the name of this machine.
	worker.SetStickyWorkflowCacheSize(0)
	for name, path := range paths { //nolint:paralleltest // see above
		t.Run(name, func(t *testing.T) {
			r := setupRecorder(t, name)
			path(r)
			r.write(t)
		})
	}
}

// paths maps names of histories to the scripts of their sessions. A file name_2.json is the second
// run of a chain.
var paths = map[string]func(*recorder){
	"hello": func(r *recorder) {
		r.start()
		r.prompt("p1", 100*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.prompt("p2", 100*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.stop()
	},
	"hibernate_and_wake": func(r *recorder) {
		r.world.idleTimeout = 500 * time.Millisecond
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.reach(session.Hibernated)
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.signal(contract.SignalSettings, contract.SettingsSignal{IdleTimeout: time.Hour})
		r.signal(contract.SignalHibernate, contract.HibernateSignal{})
		r.reach(session.Hibernated)
		r.signal(contract.SignalWake, nil)
		r.reach(session.Running)
		r.stop()
	},
	"saved_and_released": func(r *recorder) {
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.stop()
	},
	"abort": func(r *recorder) {
		r.start()
		r.prompt("p1", time.Hour, session.Hold)
		r.delivered("p1")
		r.signal(contract.SignalAbort, contract.AbortSignal{})
		r.awaitEnd("p1")
		r.stop()
	},
	"sandbox_lost": func(r *recorder) {
		r.start()
		r.prompt("p1", 100*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		for _, policy := range []session.OnUnknown{session.Hold, session.Fail} {
			id := "p_" + string(policy)
			r.prompt(id, time.Hour, policy)
			r.delivered(id)
			r.lose()
			r.awaitEnd(id)
			r.prompt("after_"+id, 50*time.Millisecond, session.Retry)
			r.awaitEnd("after_" + id)
		}
		r.stop()
	},
	"commands": func(r *recorder) {
		r.start()
		r.prompt("p1", time.Hour, session.Hold)
		r.delivered("p1")
		r.command(session.CommandAbort)
		r.awaitEnd("p1")
		r.command(session.CommandSync)
		r.settled()
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.command(session.CommandWake)
		r.reach(session.Running)
		r.command(session.CommandRestart)
		r.settled()
		r.command(session.CommandStop)
		r.reach(session.Terminated)
	},
	"stop_in_a_turn": func(r *recorder) {
		r.start()
		r.prompt("p1", time.Hour, session.Hold)
		r.delivered("p1")
		r.prompt("p2", time.Hour, session.Hold)
		r.stop()
	},
	"stop_first": func(r *recorder) {
		r.world.takes["CancelPrompts"] = 300 * time.Millisecond
		r.start()
		r.prompt("p1", time.Hour, session.Hold)
		r.delivered("p1")
		r.prompt("p2", time.Hour, session.Hold)
		r.command(session.CommandStop)
		r.reach(session.Terminated)
	},
	"error_and_drop": func(r *recorder) {
		refused, _ := fault("refused")
		r.world.inject("CreateSandbox", 1, refused)
		r.start()
		r.reach(session.Error)
		r.command(session.CommandDrop)
		r.reach(session.Running)
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.stop()
	},
	"error_of_an_earlier_version": func(r *recorder) {
		r.world.state, r.world.reason = session.Error, unusableReason
		r.start()
		r.reach(session.Running)
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.stop()
	},
	"delayed_restore": func(r *recorder) {
		passing, _ := fault("passing")
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.world.inject("RestoreSandbox", 5, passing) // more than the attempts of one activity
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.stop()
	},
	"retried": func(r *recorder) {
		r.start()
		r.prompt("p1", 2*time.Second, session.Retry)
		r.delivered("p1")
		r.lose()
		r.awaitEnd("p1")
		r.stop()
	},
	"first_sandbox_lost": func(r *recorder) {
		r.start()
		r.reach(session.Running)
		r.lose()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.stop()
	},
	// The pending prompts are read together with the end of a turn.
	"look_with_end": func(r *recorder) {
		r.start()
		r.prompt("p1", 500*time.Millisecond, session.Hold)
		r.delivered("p1")
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.prompt("p3", 500*time.Millisecond, session.Hold)
		r.delivered("p3")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.prompt("p4", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p4")
		r.stop()
	},
	// The worker of a turn claims the following prompts itself.
	"attended": func(r *recorder) {
		r.world.attends = 2 * time.Second
		r.start()
		for _, id := range []string{"p1", "p2", "p3"} {
			r.prompt(id, 50*time.Millisecond, session.Hold)
			r.awaitEnd(id)
		}
		r.prompt("p4", time.Hour, session.Hold)
		r.delivered("p4")
		r.command(session.CommandAbort)
		r.awaitEnd("p4")
		r.prompt("p5", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p5")
		r.command(session.CommandSync)
		r.settled()
		r.prompt("p6", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p6")
		r.prompt("p7", 500*time.Millisecond, session.Hold)
		r.delivered("p7")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.prompt("p8", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p8")
		r.wait("the end of the attendance", func() bool { return r.world.attendant == nil })
		r.prompt("p9", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p9")
		r.stop()
	},
	// The turn of the prompt that wakes the session begins with the restore. The last restore does not
	// claim the prompt, because its first generation is unusable.
	"turn_begins_with_restore": func(r *recorder) {
		r.world.attends = 2 * time.Second
		r.start()
		for i := range 3 {
			asleep := fmt.Sprintf("p%d", i)
			r.prompt(asleep, 50*time.Millisecond, session.Hold)
			r.awaitEnd(asleep)
			r.prompt(asleep+"_attended", 50*time.Millisecond, session.Hold)
			r.awaitEnd(asleep + "_attended")
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
		}
		spent, _ := fault("spent")
		r.world.inject("RestoreSandbox", 1, spent)
		r.prompt("p3", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p3")
		r.stop()
	},
	// The queue is held: a claim and a wake for a prompt are refused.
	"held": func(r *recorder) {
		r.start()
		r.prompt("p1", 500*time.Millisecond, session.Hold)
		r.delivered("p1")
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.hold(true)
		r.awaitEnd("p1")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.prompt("p3", 50*time.Millisecond, session.Hold)
		r.settled()
		r.hold(false)
		r.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: "p2", Ordinal: 2})
		r.awaitEnd("p3")
		r.stop()
	},
	"continue_as_new": func(r *recorder) {
		r.start()
		for i := range 8 {
			id := fmt.Sprintf("p%d", i)
			r.prompt(id, 20*time.Millisecond, session.Hold)
			r.awaitEnd(id)
		}
		r.stop()
	},
	"error_and_recover": func(r *recorder) {
		r.world.inject("CreateSandbox", 1, errors.New("it is not available just now"))
		refused, _ := fault("refused")
		r.world.inject("CreateSandbox", 1, refused)
		r.start()
		r.reach(session.Error)
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.signal(contract.SignalRecover, nil)
		r.awaitEnd("p1")
		r.stop()
	},
	// The history of the run that the reset created. Its repeated requests are refused until it has
	// read the session.
	"reset": func(r *recorder) {
		r.world.reset = true
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		tasks := r.completedTasks(r.first)
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.reset(r.first, tasks[len(tasks)-2])
		open, err := r.client.DescribeWorkflowExecution(r.t.Context(), r.world.id, "")
		require.NoError(r.t, err)
		r.first = open.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		r.prompt("p3", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p3")
		r.stop()
	},
	// The memo, and the timer of a hibernated session.
	"explained": func(r *recorder) {
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.stop()
	},
	"losses": func(r *recorder) {
		r.world.doomed = 3
		r.start()
		r.prompt("p1", 400*time.Millisecond, session.Retry)
		r.awaitEnd("p1")
		r.stop()
	},
	"closes_asleep": func(r *recorder) {
		r.world.versioned = true
		r.start()
		r.prompt("p1", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p1")
		r.command(session.CommandRestart)
		r.settled()
		r.reach(session.Running)
		r.prompt("p2", 50*time.Millisecond, session.Hold)
		r.awaitEnd("p2")
		r.command(session.CommandHibernate)
		r.reach(session.Hibernated)
	},
	"cancel": func(r *recorder) {
		r.start()
		r.prompt("p1", time.Hour, session.Hold)
		r.delivered("p1")
		require.NoError(r.t, r.client.CancelWorkflow(r.t.Context(), r.world.id, ""))
		r.reach(session.Terminated)
	},
}

// unusableReason is the reason that an earlier version recorded when every generation was unusable.
const unusableReason = "no sandbox came to use: the name is taken"

// settings are the settings of the engine for a path.
var settings = map[string][]string{
	"continue_as_new": {"--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"},
}

// recorder runs one session at a real engine.
type recorder struct {
	t      *testing.T
	name   string
	world  *world
	client client.Client
	first  string // run id
}

type realTime struct{}

func (realTime) now() time.Time                  { return time.Now() }
func (realTime) after(d time.Duration, f func()) { time.AfterFunc(d, f) }

func setupRecorder(t *testing.T, name string) *recorder {
	t.Helper()
	r := setupEngine(t, name)
	t.Cleanup(r.work())
	return r
}

// setupEngine is setupRecorder without a worker.
func setupEngine(t *testing.T, name string) *recorder {
	t.Helper()
	program, err := filepath.Abs("../bin/overwinter-temporal")
	require.NoError(t, err)
	require.FileExists(t, program, "build it with: make build")
	quiet := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	server, err := testsuite.StartDevServer(t.Context(), testsuite.DevServerOptions{
		ExistingPath: program, ExtraArgs: settings[name], LogLevel: "error", Stdout: io.Discard, Stderr: os.Stderr,
		ClientOptions: &client.Options{Identity: "recorder", Logger: quiet},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })

	r := &recorder{t: t, name: name, world: newWorld(func(string, ...any) {}), client: server.Client()}
	r.world.id = "ses_" + name
	r.world.clock, r.world.lastActivity = realTime{}, time.Now()
	for activity := range r.world.takes {
		r.world.takes[activity] = 30 * time.Millisecond
	}
	return r
}

// work runs a worker until stop is called.
func (r *recorder) work(interceptors ...interceptor.WorkerInterceptor) (stop func()) {
	return r.workAs(worker.DeploymentOptions{}, interceptors...)
}

// workAs is work for a worker of a deployment.
func (r *recorder) workAs(deployment worker.DeploymentOptions, interceptors ...interceptor.WorkerInterceptor) (stop func()) {
	var workers []worker.Worker
	for _, queue := range []string{recordedQueues.Control, recordedQueues.Turns} {
		w := worker.New(r.client, queue, worker.Options{
			Identity: "recorder", DisableRegistrationAliasing: true, DisableWorkflowWorker: queue == recordedQueues.Turns,
			MaxHeartbeatThrottleInterval: 50 * time.Millisecond, Interceptors: interceptors, DeploymentOptions: deployment,
		})
		w.RegisterActivity(&fakes{w: r.world, answer: inRealTime})
		if queue == recordedQueues.Control {
			w.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{Name: contract.WorkflowName})
		}
		require.NoError(r.t, w.Start())
		workers = append(workers, w)
	}
	return func() {
		for _, w := range workers {
			w.Stop()
		}
	}
}

// inRealTime waits until an operation ends or is cancelled.
func inRealTime(ctx context.Context, w *world, o *operation) (result any, err error) {
	done := make(chan struct{})
	o.complete = func(r any, e error) {
		result, err = r, e
		close(done)
	}
	w.mu.Unlock()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return result, err
		case <-ticker.C:
			activity.RecordHeartbeat(ctx)
		case <-ctx.Done():
			w.mu.Lock()
			w.finish(o, nil, ctx.Err())
			w.mu.Unlock()
			<-done
			return result, err
		}
	}
}

func (r *recorder) start() {
	run, err := r.client.SignalWithStartWorkflow(r.t.Context(), r.world.id, contract.SignalPrompt, contract.PromptSignal{},
		client.StartWorkflowOptions{ID: r.world.id, TaskQueue: recordedQueues.Control},
		contract.WorkflowName, contract.WorkflowInput{SessionID: r.world.id})
	require.NoError(r.t, err)
	r.first = run.GetRunID()
}

func (r *recorder) signal(name string, arg any) {
	require.NoError(r.t, r.client.SignalWorkflow(r.t.Context(), r.world.id, "", name, arg))
}

// command stores a command and signals the workflow, as the api does.
func (r *recorder) command(kind session.CommandKind) {
	r.world.mu.Lock()
	accepted, _ := r.world.submit(session.Command{Kind: kind})
	r.world.mu.Unlock()
	require.True(r.t, accepted)
	name := contract.SignalCommands
	if kind == session.CommandStop {
		name = contract.SignalStop
	}
	r.signal(name, nil)
}

// settled waits until no command is pending.
func (r *recorder) settled() {
	r.wait("the end of every command", func() bool { return len(r.world.pendingCommands()) == 0 })
}

func (r *recorder) prompt(id string, takes time.Duration, policy session.OnUnknown) {
	r.world.mu.Lock()
	p := r.world.accept(promptRow{QueuedPrompt: session.QueuedPrompt{ID: id}, takes: takes, policy: policy})
	r.world.mu.Unlock()
	r.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: id, Ordinal: p.Ordinal, At: time.Now()})
}

func (r *recorder) stop() {
	r.signal(contract.SignalStop, nil)
	require.NoError(r.t, r.client.GetWorkflow(r.t.Context(), r.world.id, "").Get(r.t.Context(), nil))
	r.reach(session.Terminated)
}

func (r *recorder) lose() {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	for _, s := range r.world.alive() {
		r.world.kill(s)
	}
}

func (r *recorder) reach(state session.State) {
	r.wait("status "+string(state), func() bool { return r.world.state == state })
}

func (r *recorder) awaitEnd(id string) {
	r.wait("the end of "+id, func() bool { return r.world.prompt(id).status.Final() })
}

func (r *recorder) delivered(id string) {
	r.wait("the delivery of "+id, func() bool { return r.world.prompt(id).deliveries > 0 })
}

func (r *recorder) wait(what string, ok func() bool) {
	require.Eventually(r.t, func() bool {
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		return ok()
	}, 2*time.Minute, 5*time.Millisecond, what)
}

// write stores the history of every run of the chain after the last one has ended.
func (r *recorder) write(t *testing.T) {
	t.Helper()
	require.NoError(t, r.client.GetWorkflow(t.Context(), r.world.id, "").Get(t.Context(), nil))
	require.Empty(t, r.world.violations)
	runID := r.first
	for n := 1; runID != ""; n++ {
		var h history.History
		events := r.client.GetWorkflowHistory(t.Context(), r.world.id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			h.Events = append(h.Events, event)
		}
		data, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&h)
		require.NoError(t, err)
		name := r.name
		if n > 1 {
			name = fmt.Sprintf("%s_%d", r.name, n)
		}
		require.NoError(t, os.WriteFile(filepath.Join("testdata/histories", name+".json"), append(data, '\n'), 0o600))
		runID = h.Events[len(h.Events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
	}
}

// hold holds the queue or releases it.
func (r *recorder) hold(held bool) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	r.world.held = held
}
