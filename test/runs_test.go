package test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitRun polls a run until it has ended, with the maximum wait of each call.
func (s *stack) waitRun(t *testing.T, runID string) object {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); ; {
		run := s.insist(t, "GET", "/api/runs/"+runID+"?wait=10s", nil)
		if run["outcome"] != nil {
			return run
		}
		require.True(t, time.Now().Before(limit), "run %s is %v", runID, run["status"])
	}
}

// TestRunsContinueForkAndSurviveWorkerLoss checks that one of several simultaneous runs on a head
// is accepted, that it keeps its id although its worker is killed, that its bundle is the base of
// the next one, and that a forking run has only the files of its base.
func TestRunsContinueForkAndSurviveWorkerLoss(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{})
	first := s.must(t, http.StatusOK, "POST", "/api/runs", object{"baseSessionId": id, "input": "write a.txt: one", "wait": "2m"})
	require.Equal(t, "completed", first["outcome"])
	require.Nil(t, first["baseBundleId"], "a new session has no bundle")
	var base string
	require.Eventually(t, func() bool {
		base, _ = s.insist(t, "GET", "/api/runs/"+first["runId"].(string), nil)["bundleId"].(string)
		return base != ""
	}, 2*time.Minute, 50*time.Millisecond, "the run is not saved")

	var accepted []object
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			status, run, err := s.call("POST", "/api/runs", object{"baseBundleId": base, "input": "write a.txt: two\n$ sleep 5"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && status == http.StatusAccepted {
				accepted = append(accepted, run)
			} else if status != http.StatusConflict || run["code"] != "run_unfinished" {
				t.Errorf("status %d, error %v, answer %v", status, err, run)
			}
		})
	}
	all.Wait()
	require.Len(t, accepted, 1)
	second := accepted[0]
	require.Equal(t, id, second["sessionId"])
	require.Equal(t, base, second["baseBundleId"])
	forked := s.must(t, http.StatusAccepted, "POST", "/api/runs", object{"baseBundleId": base, "input": "$ cat a.txt", "fork": true})

	require.Eventually(t, func() bool {
		return s.insist(t, "GET", "/api/runs/"+second["runId"].(string), nil)["status"] == "processing"
	}, 2*time.Minute, 20*time.Millisecond)
	s.killChild(t, "overwinter worker")
	ended := s.waitRun(t, second["runId"].(string))
	require.Equal(t, "completed", ended["outcome"])
	require.EqualValues(t, 1, ended["attempts"])
	require.Equal(t, "completed", s.waitRun(t, forked["runId"].(string))["outcome"])
	require.Contains(t, s.text(t, forked["sessionId"].(string)), "one")
	require.NotContains(t, s.text(t, forked["sessionId"].(string)), "two")

	third := s.must(t, http.StatusAccepted, "POST", "/api/runs", object{"baseSessionId": id, "input": "$ sleep 600"})
	require.Eventually(t, func() bool {
		return s.insist(t, "GET", "/api/runs/"+third["runId"].(string), nil)["status"] == "processing"
	}, 2*time.Minute, 20*time.Millisecond)
	s.must(t, http.StatusAccepted, "POST", "/api/runs/"+third["runId"].(string)+"/cancel", nil)
	cancelled := s.waitRun(t, third["runId"].(string))
	require.Equal(t, "cancelled", cancelled["outcome"])
	require.Equal(t, "aborted", cancelled["reason"])
	require.Nil(t, cancelled["bundleId"])
	again := s.must(t, http.StatusOK, "POST", "/api/runs/"+third["runId"].(string)+"/cancel", nil)
	require.Equal(t, cancelled["endedAt"], again["endedAt"], "an outcome does not change")
}
