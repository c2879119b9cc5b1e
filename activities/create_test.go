package activities_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
)

func TestRepeatedCreateAdoptsFirstSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(t)
	require.Equal(t, first, b.create(t), "its deadline too: the sandbox does not live longer for being found")
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Len(t, listed, 1)
}

func TestCreateAdoptsSandboxAfterLostResponse(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpCreate, Code: driver.Unavailable, After: true})
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	_, err = do(b, attempt{}, b.control.CreateSandbox, in)
	requirePassing(t, err)
	made := time.Now()
	ready := b.create(t)
	require.Equal(t, 2+1, b.memory.Calls(memsandbox.OpCreate), "of the builder, and the two attempts")
	require.True(t, b.running(t, ready.SandboxID))
	require.WithinRange(t, ready.Deadline, time.Now(), made.Add(b.config.SandboxTimeout))
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Len(t, listed, 1)
}

func TestUnresponsiveRunnerConsumesGeneration(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.memory.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		if p.Args[1] == "ping" {
			return 3 // no runner serves
		}
		return idleRunner(ctx, p)
	})
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	for range 2 { // the answer may be lost, and then the attempt is made again
		_, err := do(b, attempt{}, b.control.CreateSandbox, in)
		requireType(t, activities.GenerationUnusable, err)
		listed, err := driver.Collect(b.provider.List(b.ctx))
		require.NoError(t, err)
		require.Empty(t, listed)
	}
	b.memory.Handle("overwinter-runner", idleRunner)
	in.Generation = 2
	_, err := do(b, attempt{}, b.control.CreateSandbox, in)
	require.NoError(t, err)
}

func TestShortProviderOutageConsumesNoGeneration(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpExec, Code: driver.Unavailable})
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	_, err = do(b, attempt{}, b.control.CreateSandbox, in)
	requirePassing(t, err)
	ready := b.create(t)
	require.EqualValues(t, 1, ready.Generation)
}

func TestSandboxOfCancelledCreateIsAdopted(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ctx, cancel := context.WithCancel(b.ctx)
	b.memory.Handle("overwinter-runner", func(c context.Context, p *memsandbox.Proc) int {
		if p.Args[1] == "ping" {
			cancel()
			<-c.Done()
		}
		return idleRunner(c, p)
	})
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	_, err := do(b, attempt{ctx: ctx}, b.control.CreateSandbox, in)
	require.Error(t, err)
	require.NotEqual(t, activities.GenerationUnusable, activities.TypeOf(err))
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Len(t, listed, 1)
	b.memory.Handle("overwinter-runner", idleRunner)
	require.Equal(t, listed[0].ID, b.create(t).SandboxID)
}

// TestCreateAdoptsSandboxOfOlderImage changes the agent's image between two attempts.
func TestCreateAdoptsSandboxOfOlderImage(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	first, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpCreate, Code: driver.Unavailable, After: true})
	_, err = do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 1})
	requirePassing(t, err)

	newer := runnerImage(b.provider)
	newer.recipe.Env = map[string]string{"AGENT_VERSION": "2"}
	second, err := newer.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	b.config.Image = newer
	b.build()

	ready := b.create(t)
	require.EqualValues(t, 1, ready.Generation)
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, ready.SandboxID, listed[0].ID)

	// If the image is deleted, the current one replaces it.
	other := b.session(t)
	require.NoError(t, b.db.GenerationReserve(b.ctx, other, 1, "im-gone"))
	_, err = do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: other, Generation: 1})
	require.NoError(t, err)
}

func TestForeignSandboxNameConsumesGeneration(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	foreign := sandbox.NewProvider(b.memory, sandbox.Options{Installation: "another"})
	theirs, _, err := foreign.Create(b.ctx, sandbox.Spec{Session: b.id, Generation: 1, Image: "debian:12"})
	require.NoError(t, err)
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	_, err = do(b, attempt{}, b.control.CreateSandbox, in)
	requireType(t, activities.GenerationUnusable, err)
	in.Generation = 2
	ready, err := do(b, attempt{}, b.control.CreateSandbox, in)
	require.NoError(t, err)
	b.terminate(t, ready)
	require.False(t, b.running(t, ready.SandboxID))
	require.True(t, b.running(t, theirs.ID()))
}

func TestTerminateIsIdempotentAndEndsLeftoverSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.image.Prepare(b.ctx, demo.Name)
	require.NoError(t, err)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpCreate, Code: driver.Unavailable, After: true})
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	_, err = do(b, attempt{}, b.control.CreateSandbox, in)
	requirePassing(t, err)
	b.terminate(t, activities.SandboxReady{})
	listed, err := driver.Collect(b.provider.List(b.ctx))
	require.NoError(t, err)
	require.Empty(t, listed, "a sandbox that no row names was found by its name")
	b.terminate(t, activities.SandboxReady{})
	rows, err := b.db.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, rows)
}

func TestTerminateRetriesUntilProviderConfirms(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.memory.Inject(memsandbox.Fault{Op: memsandbox.OpTerminate, Code: driver.Unavailable})
	ref := activities.SandboxRef{SessionID: b.id, Generation: 1, SandboxID: ready.SandboxID}
	_, err := do(b, attempt{}, plain(b.control.TerminateSandbox), ref)
	requirePassing(t, err)
	rows, err := b.db.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1, "a row is closed only when its sandbox has ended")
	b.terminate(t, ready)
	require.False(t, b.running(t, ready.SandboxID))
}

func TestTerminationHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	beaten := make(chan struct{})
	var once sync.Once
	signalled := false
	b.driver.set(func(f *faulty) {
		f.terminate = func(string) error {
			select {
			case <-beaten:
				signalled = true
			case <-time.After(waitLimit):
			}
			return nil
		}
	})
	ref := activities.SandboxRef{SessionID: b.id, Generation: 1, SandboxID: ready.SandboxID}
	_, err := do(b, attempt{beat: func() { once.Do(func() { close(beaten) }) }}, plain(b.control.TerminateSandbox), ref)
	require.NoError(t, err)
	require.True(t, signalled, "a lost worker must be noticed before the activity times out")
}

// TestTerminateOfNamedSandboxNeedsNoDatabase checks that the sandbox is terminated during an outage
// of the database, and that its row is ended when the database answers again.
func TestTerminateOfNamedSandboxNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepSandboxes {
			return failure.Errorf(failure.Unavailable, "the database is not available")
		}
		return nil
	}, nil)
	ref := activities.SandboxRef{SessionID: b.id, Generation: 1, SandboxID: ready.SandboxID}
	_, err := do(b, attempt{}, plain(b.control.TerminateSandbox), ref)
	requirePassing(t, err)
	require.False(t, b.running(t, ready.SandboxID))

	b.steps.set(nil, nil)
	b.terminate(t, ready)
	rows, err := b.db.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, rows)
}

func has(word string) func(driver.ExecRequest) bool {
	return func(r driver.ExecRequest) bool { return slices.Contains(r.Argv, word) }
}
