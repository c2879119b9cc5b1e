package test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
)

// strandedAfter is the time without a polling worker of a build after which its sessions move: the
// minimum value.
const strandedAfter = 90 * time.Second

// TestSessionsCrossFromBuildToBuild runs two builds of the worker at once. A session stays with its
// build while it is awake, and moves to the current one after it has slept. Then the old build is
// killed, with sessions awake, asleep and in a turn, and the installation returns to workers
// without builds. Every prompt runs once.
func TestSessionsCrossFromBuildToBuild(t *testing.T) {
	t.Parallel()
	i := startInstallation(t)
	path := program(t, "overwinter")
	i.migrate(t, path)
	i.startAPI(t, "api", path)
	build := func(id string) *server {
		return i.startWorker(t, "worker-"+id, path, "--versioning", "--build-id", id, "--stranded-after", strandedAfter.String())
	}
	var all []*subject
	begin := func() *subject {
		s := i.newSubject(t, nil)
		all = append(all, s)
		s.run(t, "first")
		return s
	}

	old := build("old")
	i.makeCurrent(t, "old")
	awake, asleep, turn := begin(), begin(), begin()
	asleep.sleep(t)
	turn.send(t.Context(), "long", "", i.hits.gate(turn.id))
	i.hits.wait(t, turn.name("long"), settleWithin)
	for _, s := range []*subject{awake, turn} {
		require.Equal(t, "old", i.buildOf(t, s))
	}

	current := build("new")
	i.makeCurrent(t, "new")
	require.Equal(t, "new", i.buildOf(t, begin()))
	awake.run(t, "second")
	i.saves(t, awake) // saving requires a workflow task, unlike a prompt that an attendant claims
	require.Equal(t, "old", i.buildOf(t, awake), "pinned while it is awake")
	crosses := begin()
	asleep.run(t, "second")
	require.Equal(t, "new", i.buildOf(t, asleep), "it woke on the current build")
	crosses.sleep(t)
	asleep.sleep(t)

	old.kill()
	for _, s := range all {
		s.send(t.Context(), "after", "")
	}
	i.hits.open(turn.id)
	i.explained(t, awake.id, "prompt", "after", "no_worker")
	for _, s := range []*subject{awake, turn} {
		got := i.waitPrompt(t, s.id, "after", strandedAfter+settleWithin)
		require.Equal(t, "completed", got["status"], "%v", got)
		require.Equal(t, "new", i.buildOf(t, s), "no worker of the old build is left")
	}

	i.startWorker(t, "worker-without", path)
	i.makeCurrent(t, "")
	for _, s := range all {
		s.sleep(t)
		i.unpinned(t, s)
	}
	current.stop(t)
	for _, s := range all {
		s.run(t, "last")
		require.Empty(t, i.buildOf(t, s))
	}
	for _, s := range all {
		s.settled(t, settleWithin)
		s.audit(t)
		for _, p := range s.prompts {
			got := i.must(t, http.StatusOK, "GET", "/api/sessions/"+s.id+"/prompts/"+p.id, nil)
			if n := i.hits.count(s.name(p.id)); got["status"] != "completed" || n != 1 {
				t.Errorf("prompt %s of %s ran %d times and is %v (%v)", p.id, s.id, n, got["status"], got["reason"])
			}
		}
	}
	i.checkLedgers(t, all)
}

// saves makes an awake session save a bundle.
func (i *installation) saves(t *testing.T, s *subject) {
	t.Helper()
	require.Equal(t, http.StatusAccepted, s.order(http.MethodPost, "sync", nil))
	eventually(t, settleWithin, s.id+" has a bundle", func() error {
		_, page, err := i.call(http.MethodGet, "/api/sessions/"+s.id+"/bundles", nil)
		if err != nil {
			return err
		}
		if items, _ := page["items"].([]any); len(items) == 0 {
			return fmt.Errorf("%v", page)
		}
		return nil
	})
}

// makeCurrent makes new and waking sessions start on a build; "" selects workers without builds.
func (i *installation) makeCurrent(t *testing.T, build string) {
	t.Helper()
	deployment := i.temporal.client.WorkerDeploymentClient().GetHandle("overwinter-" + i.id(t))
	eventually(t, settleWithin, "build "+build+" is current", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := deployment.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err
	})
}

// unpinned waits until the workflow of a session that sleeps has completed: the state is visible
// before, and until then the session needs a worker of its build.
func (i *installation) unpinned(t *testing.T, s *subject) {
	t.Helper()
	eventually(t, settleWithin, "the workflow of "+s.id+" completes", func() error {
		d, err := i.temporal.client.DescribeWorkflowExecution(t.Context(), s.id, "")
		if err != nil {
			return err
		}
		if status := d.GetWorkflowExecutionInfo().GetStatus(); status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return fmt.Errorf("%s", status)
		}
		return nil
	})
}

// buildOf returns the build to which the workflow of a session is pinned.
func (i *installation) buildOf(t *testing.T, s *subject) (build string) {
	t.Helper()
	eventually(t, settleWithin, "Temporal describes "+s.id, func() error {
		d, err := i.temporal.client.DescribeWorkflowExecution(t.Context(), s.id, "")
		if err != nil {
			return err
		}
		if d.GetPendingWorkflowTask() != nil {
			return fmt.Errorf("a worker is to see it")
		}
		build = d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
		return nil
	})
	return build
}
