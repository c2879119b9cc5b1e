package test

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAttendedSessionsSurviveTheirWorkers freezes and kills workers while they attend sessions, and
// while they claim prompts and begin, run and end turns, with commands in between. Each prompt ends
// and runs once, in order.
func TestAttendedSessionsSurviveTheirWorkers(t *testing.T) { //nolint:tparallel // one fault after the other, all of one system
	t.Parallel()
	r := startRigEnv(t, []string{"OVERWINTER_ATTEND=30s"}, 2)
	t.Run("frozen at the begin of turns", func(t *testing.T) { r.workersFrozenAtTheBegin(t) })        //nolint:paralleltest // see above
	t.Run("frozen while the api is killed", func(t *testing.T) { r.attendantsFrozenAndAPIKilled(t) }) //nolint:paralleltest // see above
	t.Run("killed at any time", func(t *testing.T) { r.attendantsKilled(t) })                         //nolint:paralleltest // see above
	r.nothingIsLeft(t, settleWithin)
}

// attendantsFrozenAndAPIKilled freezes the attendants, so that they claim no prompts, and kills the
// api after it has accepted prompts that it has not signaled because the sessions have attendants.
func (r *rig) attendantsFrozenAndAPIKilled(t *testing.T) {
	t.Helper()
	subjects := make([]*subject, 4)
	for i := range subjects {
		subjects[i] = r.newSubject(t, nil)
		subjects[i].run(t, "first")
	}
	for round, thaw := range []time.Duration{time.Second, outage} {
		for _, s := range subjects { // their workers attend them
			s.run(t, fmt.Sprintf("before%d", round))
		}
		var frozen sync.WaitGroup
		frozen.Go(func() { freeze(r.pids(partWorker), thaw) })
		prompt := fmt.Sprintf("lost%d", round)
		for _, s := range subjects {
			accepted, _, err := s.call("POST", "/api/sessions/"+s.id+"/prompts", object{"id": prompt, "content": s.script(prompt)})
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, accepted)
			s.mu.Lock()
			s.prompts = append(s.prompts, &sentPrompt{id: prompt, verdict: accepted, accepted: true}) // sent once, because the api would signal a repeated request
			s.mu.Unlock()
		}
		kill(r.pids(partAPI))
		frozen.Wait()
		for _, s := range subjects {
			s.settled(t, settleWithin)
			require.Equal(t, "completed", s.waitPrompt(t, s.id, prompt, time.Second)["status"])
		}
	}
	r.finish(t, subjects)
}

// attendantsKilled kills both workers, one after the other, while attended sessions get prompts:
// some between their turns, some during a claim, some during a turn or at its end.
func (r *rig) attendantsKilled(t *testing.T) {
	t.Helper()
	const sessions = 6
	subjects := make([]*subject, sessions)
	for i := range subjects {
		subjects[i] = r.newSubject(t, nil)
		subjects[i].run(t, "first")
	}
	for round := range 2 { // one for each worker
		for i, s := range subjects { // their workers attend them
			s.run(t, fmt.Sprintf("before%d-%d", round, i))
		}
		workers := r.pids(partWorker)
		require.Len(t, workers, 2)
		for i, s := range subjects {
			switch i % 3 {
			case 0:
				s.send(t.Context(), fmt.Sprintf("short%d", round), "")
			case 1:
				s.send(t.Context(), fmt.Sprintf("long%d", round), "", "slow 20ms: one two three four five six seven eight nine ten")
				if i > 3 {
					s.order("POST", "hibernate", nil)
				}
			}
			if i == sessions/2 {
				require.NoError(t, syscall.Kill(workers[round], syscall.SIGKILL))
			}
		}
		for i, s := range subjects { // those that were idle are prompted after the kill
			if i%3 == 2 {
				s.send(t.Context(), fmt.Sprintf("after%d", round), "")
			}
		}
		for _, s := range subjects {
			s.settled(t, settleWithin)
		}
		eventually(t, 60*time.Second, "both workers are back", func() error {
			if n := len(r.pids(partWorker)); n != 2 {
				return fmt.Errorf("%d workers", n)
			}
			return nil
		})
	}
	for _, s := range subjects {
		for _, p := range s.prompts {
			require.Equal(t, "completed", s.waitPrompt(t, s.id, p.id, time.Second)["status"], p.id)
		}
	}
	r.finish(t, subjects)
}
