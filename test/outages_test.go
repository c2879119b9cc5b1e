package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outage is longer than any timeout after which one part considers another part lost.
const outage = 22 * time.Second

// TestOutages makes each part unavailable for longer than any timeout of its users, while sessions
// are in every affected state. Every prompt ends without intervention.
func TestOutages(t *testing.T) { //nolint:tparallel // one outage after the other, all of one system
	t.Parallel()
	r := startRig(t, 2)
	t.Run("workers frozen at the begin of turns", func(t *testing.T) { r.workersFrozenAtTheBegin(t) }) //nolint:paralleltest // see above
	t.Run("Postgres refused", func(t *testing.T) { r.postgresRefused(t) })                             //nolint:paralleltest // see above
	t.Run("Temporal away", func(t *testing.T) { r.temporalAway(t) })                                   //nolint:paralleltest // see above
	r.nothingIsLeft(t, settleWithin)
}

// workersFrozenAtTheBegin freezes first one worker and then all of them while they start turns,
// until their heartbeats have timed out. An attempt that continues late takes no turn from its
// replacement.
func (r *rig) workersFrozenAtTheBegin(t *testing.T) {
	t.Helper()
	const sessions = 4 // with and without a retry, with and without a hibernation
	subjects := make([]*subject, sessions)
	for i := range subjects {
		subjects[i] = r.newSubject(t, object{"prompt": object{"id": "first", "content": "hello"}})
	}
	for _, s := range subjects {
		require.Equal(t, "completed", s.waitPrompt(t, s.id, "first", settleWithin)["status"])
	}
	workers := r.pids(partWorker)
	require.Len(t, workers, 2)
	for round, frozen := range [][]int{workers[:1], workers} {
		prompt := fmt.Sprintf("frozen%d", round)
		var sending sync.WaitGroup
		for i, s := range subjects {
			policy := ""
			if i%2 == 1 {
				policy = "retry"
			}
			sending.Go(func() {
				<-time.After(time.Duration(i*10) * time.Millisecond)
				s.send(t.Context(), prompt, policy, "sleep 4s")
				if i%4 > 1 {
					s.order("POST", "hibernate", nil)
				}
			})
		}
		subjects[0].stream.wait(t, settleWithin, "the first of them is claimed", func(e event) bool {
			return e.Type == "prompt" && strings.Contains(string(e.Data), `"`+prompt+`"`) && strings.Contains(string(e.Data), `"processing"`)
		})
		freeze(frozen, outage)
		sending.Wait()
		for _, s := range subjects {
			s.settled(t, settleWithin)
		}
	}
	r.finish(t, subjects)
}

// postgresRefused closes Postgres's port while sessions are created, wake, hibernate and work, and
// while prompts arrive.
func (r *rig) postgresRefused(t *testing.T) {
	t.Helper()
	waking, sleeping, working, idle := r.newSubject(t, nil), r.newSubject(t, nil), r.newSubject(t, nil), r.newSubject(t, nil)
	subjects := []*subject{waking, sleeping, working, idle}
	for _, s := range subjects {
		s.run(t, "first")
	}
	waking.sleep(t)
	working.send(t.Context(), "working", "", "slow 500ms: "+strings.Repeat("word ", 60))
	r.hits.wait(t, working.name("working"), settleWithin)
	working.send(t.Context(), "next", "")

	after := waking.stream.last()
	waking.send(t.Context(), "waking", "")
	sleeping.order("POST", "hibernate", nil)
	created := r.newSubject(t, object{"sandbox": "eager"})
	created.send(t.Context(), "created", "")
	subjects = append(subjects, created)
	waking.reaches(t, "restoring", after)
	var fault sync.WaitGroup
	fault.Go(func() { r.database.refuse(t, outage) })
	for i, s := range subjects { // each prompt is sent again until it is accepted
		s.send(t.Context(), fmt.Sprintf("during%d", i), "")
	}
	fault.Wait()
	for _, s := range subjects {
		s.settled(t, settleWithin)
	}
	for _, s := range subjects {
		for _, p := range s.prompts {
			require.Equal(t, "completed", s.waitPrompt(t, s.id, p.id, time.Second)["status"], p.id)
		}
	}
	r.finish(t, subjects)
}

// temporalAway closes Temporal's port. Prompts and commands are accepted in the meantime and
// executed afterwards.
func (r *rig) temporalAway(t *testing.T) {
	t.Helper()
	var subjects []*subject
	for range 6 {
		s := r.newSubject(t, nil)
		s.run(t, "first")
		subjects = append(subjects, s)
	}
	prompted, hibernated, stopped, waking, working, aborted := subjects[0], subjects[1], subjects[2], subjects[3], subjects[4], subjects[5]
	waking.sleep(t)
	aborted.send(t.Context(), "long", "", "sleep 10m")
	r.hits.wait(t, aborted.name("long"), settleWithin)
	working.send(t.Context(), "working", "", "slow 500ms: "+strings.Repeat("word ", 30))
	r.hits.wait(t, working.name("working"), settleWithin)

	var fault sync.WaitGroup
	fault.Go(func() { r.engine.refuse(t, outage) })
	prompted.send(t.Context(), "during", "")
	working.send(t.Context(), "during", "")
	for _, c := range []struct {
		s       *subject
		command string
	}{{hibernated, "hibernate"}, {stopped, "stop"}, {waking, "wake"}, {aborted, "abort"}} {
		require.Equal(t, http.StatusAccepted, c.s.order("POST", c.command, nil), "%s is accepted while Temporal is away", c.command)
	}
	prompted.explained(t, prompted.id, "prompt", "during", "temporal_unavailable")
	hibernated.explained(t, hibernated.id, "", "", "command_pending")
	fault.Wait()
	for _, s := range subjects {
		s.settled(t, settleWithin)
	}
	hibernated.waitStatus(t, hibernated.id, "hibernated", settleWithin)
	stopped.waitStatus(t, stopped.id, "terminated", settleWithin)
	waking.waitStatus(t, waking.id, "running", settleWithin)
	require.Equal(t, "cancelled", aborted.waitPrompt(t, aborted.id, "long", settleWithin)["status"])
	for _, s := range []*subject{prompted, working} {
		require.Equal(t, "completed", s.waitPrompt(t, s.id, "during", settleWithin)["status"])
	}
	r.finish(t, subjects)
}

// finish audits sessions that have settled, and stops them.
func (r *rig) finish(t *testing.T, subjects []*subject) {
	t.Helper()
	var alive []*subject
	for _, s := range subjects {
		s.audit(t)
		if !s.stopped {
			alive = append(alive, s)
		}
	}
	r.checkLedgers(t, alive)
	var ending sync.WaitGroup
	for _, s := range alive {
		ending.Go(func() { s.order("POST", "stop", nil) })
	}
	ending.Wait()
	for _, s := range subjects {
		s.waitStatus(t, s.id, "terminated", settleWithin)
	}
}
