package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/workflows"
)

// stage runs a session's workflow against a world in the SDK's environment, which skips time. Like
// a real engine, it runs a script from start to end, through every continuation, completion and
// restart.
type stage struct {
	world  *world
	script []scene
	// registered is the number of next scenes that are registered in the environment.
	registered int
	until      time.Time // the script ends here

	env     *testsuite.TestWorkflowEnvironment // nil while no workflow is open
	at      time.Time                          // the time while no workflow is open
	ringing []signal                           // the signals that start the next workflow
	timers  timers
	// The activities of this run: each function reports whether the activity is still in progress.
	activities []func() bool
	err        error          // error of a failed workflow
	commands   map[string]int // commands of all runs, as sent to Temporal
	inError    bool           // the memo reports the state error
	history    historyLength
}

// scene is the commands of one time. A scene that restarts discards the open workflow, like a
// termination by hand, and starts another from the state in Postgres.
type scene struct {
	at      time.Time
	restart bool
	do      func()
}

type signal struct {
	name string
	arg  any
}

func newStage() *stage {
	s := &stage{at: epoch, commands: map[string]int{}}
	s.world = newWorld(func(string, ...any) {})
	s.world.clock = s
	s.world.taskQueue = contract.QueuesOf("0123").Control
	return s
}

func (s *stage) now() time.Time {
	if s.env != nil {
		return s.env.Now()
	}
	return s.at
}

func (s *stage) after(d time.Duration, f func()) {
	if s.env != nil {
		s.env.RegisterDelayedCallback(f, max(d, time.Nanosecond))
	}
}

// act plays the script. The next signal that may start a workflow restarts a completed one.
func (s *stage) act() {
	input := contract.WorkflowInput{SessionID: s.world.id}
	for len(s.script) > 0 || len(s.ringing) > 0 {
		if len(s.ringing) == 0 {
			next := s.script[0]
			s.script = s.script[1:]
			s.at = next.at
			next.do()
			continue
		}
		for open := true; open; {
			input, open = s.run(input)
		}
		input = contract.WorkflowInput{SessionID: s.world.id}
		if s.at.Equal(s.until) || s.err != nil {
			return
		}
	}
}

// run executes one run of the workflow. It returns the input of the next run and whether that run
// follows immediately.
func (s *stage) run(input contract.WorkflowInput) (contract.WorkflowInput, bool) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	suite.SetDisableRegistrationAliasing(true)
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(s.at)
	env.SetWorkerOptions(worker.Options{
		Interceptors:             []interceptor.WorkerInterceptor{&engine{stage: s}},
		DeadlockDetectionTimeout: time.Minute, // a machine may be busy with other tests
	})
	env.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{Name: contract.WorkflowName})
	env.RegisterActivity(&fakes{w: s.world, answer: s.answer})
	limit := s.limit()
	env.SetWorkflowRunTimeout(limit.Sub(s.at))
	env.SetTestTimeout(time.Minute)
	s.env, s.timers.pending, s.activities = env, nil, nil
	s.history.begin(env)
	s.world.adopt(s)

	ringing := s.ringing
	s.ringing = nil
	env.RegisterDelayedCallback(func() {
		for _, r := range ringing {
			s.history.add(1 + taskEvents)
			env.SignalWorkflow(r.name, r.arg)
		}
	}, time.Nanosecond)
	s.registered = 0
	s.register(env, s.at, limit)
	env.ExecuteWorkflow(contract.WorkflowName, input)

	s.at, s.env = env.Now(), nil
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	err := env.GetWorkflowError()
	var next *workflow.ContinueAsNewError
	switch {
	case err == nil:
		s.world.say("the workflow completes")
		if s.world.loaded {
			s.world.violate("the workflow completes and the session is loaded")
		}
		return contract.WorkflowInput{}, false
	case errors.As(err, &next):
		return s.continued(next), true
	case isTimeout(err) && limit.Before(s.until):
		s.at = limit
		s.script[0].do()
		s.script = s.script[1:]
		return contract.WorkflowInput{SessionID: s.world.id}, true
	case isTimeout(err):
		s.at = s.until
		return contract.WorkflowInput{}, false
	}
	s.err = err
	s.world.violate("the workflow fails: %s", err)
	return contract.WorkflowInput{}, false
}

// maxRegistered bounds the scenes registered at a time. The environment has room for a thousand
// callbacks.
const maxRegistered = 500

// register schedules the next scenes in the environment.
func (s *stage) register(env *testsuite.TestWorkflowEnvironment, now, limit time.Time) {
	for s.registered < min(maxRegistered, len(s.script)) && s.script[s.registered].at.Before(limit) {
		scene := s.script[s.registered]
		s.registered++
		env.RegisterDelayedCallback(func() {
			if env.IsWorkflowCompleted() {
				return
			}
			s.script = s.script[1:]
			s.registered--
			s.register(env, env.Now(), limit)
			scene.do()
		}, max(scene.at.Sub(now), time.Nanosecond))
	}
}

// limit returns the time at which an open run ends: the end of the script, or the time at which the
// script discards the run.
func (s *stage) limit() time.Time {
	for _, scene := range s.script {
		if scene.restart {
			return scene.at
		}
	}
	return s.until
}

func isTimeout(err error) bool {
	_, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok
}

// continued decodes the input of the next run.
func (s *stage) continued(next *workflow.ContinueAsNewError) (input contract.WorkflowInput) {
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &input); err != nil {
		s.world.violate("the input of the next run: %s", err)
	}
	if next.TaskQueueName != s.world.taskQueue {
		s.world.violate("continues on queue %s, not on the installation's %s", next.TaskQueueName, s.world.taskQueue)
	}
	for _, pending := range s.activities {
		if pending() {
			s.world.violate("continues as new with an activity in progress")
		}
	}
	s.world.say("continues as new: run %d, wants %+v, %d seen", input.Carried.Runs, input.Carried.Wants, len(input.Carried.Seen))
	return input
}

// answer ends an operation from a callback of the environment, so that its time passes at once and
// it can be ended early.
func (s *stage) answer(ctx context.Context, w *world, o *operation) (any, error) {
	defer w.mu.Unlock()
	env, token := s.env, activity.GetInfo(ctx).TaskToken
	o.complete = func(result any, err error) {
		if err := env.CompleteActivity(token, result, err); err != nil {
			w.violate("complete %s: %s", o.activity, err)
		}
	}
	return nil, activity.ErrResultPending
}

// open reports whether a workflow is open. If none is, a relay signals for pending work.
func (s *stage) open() bool { return s.env != nil && !s.env.IsWorkflowCompleted() }

// signal sends a signal to the open workflow. If none is open, the signal starts one if start is
// set, and is lost otherwise, like the calls of Temporal's client.
func (s *stage) signal(name string, arg any, start bool) bool {
	switch {
	case s.env != nil && !s.env.IsWorkflowCompleted():
		s.history.add(1 + taskEvents)
		s.env.SignalWorkflow(name, arg)
	case start:
		s.ringing = append(s.ringing, signal{name: name, arg: arg})
	default:
		return false
	}
	return true
}

func (s *stage) view() (v contract.StateView, err error) {
	if s.env == nil {
		return v, errors.New("no workflow is open")
	}
	answer, err := s.env.QueryWorkflow(contract.QueryState)
	if err != nil {
		return v, fmt.Errorf("query: %w", err)
	}
	return v, answer.Get(&v)
}
