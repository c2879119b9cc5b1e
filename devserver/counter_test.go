package main

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Names on the wire of the test workflow.
const (
	counterQueue = "counter"
	countSignal  = "count"
	finishSignal = "finish"
)

// status is the search attribute that the counter sets.
var status = temporal.NewSearchAttributeKeyKeyword("OverwinterStatus")

// counters implements the test workflow for workers.
type counters struct {
	mu      sync.Mutex
	handled map[int]chan struct{}
}

// handle returns a channel that is closed when the workflow has seen the number in a signal.
func (c *counters) handle(n int) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handled[n] == nil {
		c.handled[n] = make(chan struct{})
	}
	return c.handled[n]
}

// Count collects the numbers that it receives until it is asked to finish, and returns them.
func (c *counters) Count(ctx workflow.Context) ([]int, error) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, status.ValueSet("counting")); err != nil {
		return nil, err
	}
	var numbers []int
	finished := false
	selector := workflow.NewSelector(ctx)
	selector.AddReceive(workflow.GetSignalChannel(ctx, countSignal), func(ch workflow.ReceiveChannel, _ bool) {
		var n int
		ch.Receive(ctx, &n)
		numbers = append(numbers, n)
		if !workflow.IsReplaying(ctx) {
			close(c.handle(n))
		}
	})
	selector.AddReceive(workflow.GetSignalChannel(ctx, finishSignal), func(ch workflow.ReceiveChannel, _ bool) {
		ch.Receive(ctx, nil)
		finished = true
	})
	for !finished || selector.HasPending() {
		selector.Select(ctx)
	}
	return numbers, workflow.UpsertTypedSearchAttributes(ctx, status.ValueSet("counted"))
}

// work runs a worker for the test workflow until the end of the test.
func work(t *testing.T, c client.Client) *counters {
	t.Helper()
	counters := &counters{handled: map[int]chan struct{}{}}
	w := worker.New(c, counterQueue, worker.Options{WorkerStopTimeout: time.Second})
	w.RegisterWorkflowWithOptions(counters.Count, workflow.RegisterOptions{Name: "Count"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return counters
}

// startCounter starts the test workflow.
func startCounter(t *testing.T, c client.Client, id string) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: counterQueue}, "Count")
	require.NoError(t, err)
	return run
}
