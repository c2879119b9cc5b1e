package test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// releaseBefore is the commit of version 0.2.0.
const releaseBefore = "4a169b6e91edc3d1463e10cd7ba5cc3dfd1de6f7"

var (
	upgradeFrom = flag.String("upgrade-from", releaseBefore, "commit of the release that installations are upgraded from")
	allUpgrades = flag.Bool("all-upgrades", false, "upgrade in every order, not only as documented")
)

// TestInstallationIsUpgradedUnderLoad replaces the api and the worker of the previous release one
// by one, while clients send prompts continuously and sessions are in every state. No prompt is
// lost, none runs twice, and sessions make progress in every phase, with programs of both releases
// running at the same time.
//
//	release before: api, worker ─▶ migrate ─▶ a new worker next to the old one ─▶ old worker stops ─▶ the same with the api
func TestInstallationIsUpgradedUnderLoad(t *testing.T) {
	t.Parallel()
	orders := []string{"worker first"}
	if *allUpgrades {
		orders = append(orders, "api first", "worker killed")
	}
	before := releasePrograms(t, *upgradeFrom, *allUpgrades)
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			u := &upgrade{installation: startInstallation(t), before: before, now: program(t, "overwinter")}
			u.migrate(t, u.before)
			u.api = u.startAPI(t, "api-before", u.before)
			u.worker = u.startWorker(t, "worker-before", u.before)
			u.begin(t)
			u.progress(t, "the release before")
			u.migrate(t, u.now)
			u.progress(t, "the new schema")
			switch order {
			case "api first":
				u.replaceAPI(t)
				u.replaceWorker(t, (*server).stop)
			case "worker killed":
				u.replaceWorker(t, func(s *server, _ *testing.T) { s.kill() })
				u.replaceAPI(t)
			default:
				u.replaceWorker(t, (*server).stop)
				u.replaceAPI(t)
			}
			u.end(t)
		})
	}
}

// upgrade is an installation under load whose programs are replaced.
type upgrade struct {
	*installation
	before, now string // programs
	api, worker *server

	flows    []*flow
	stop     context.CancelFunc
	flowing  sync.WaitGroup
	subjects []*subject // all sessions
	asleep   []*subject
	open     []func() // lets the waiting turns continue
}

// flow is a session whose client sends a prompt whenever the previous one has ended.
type flow struct {
	*subject
	pause     time.Duration // between prompts
	rest      time.Duration // after each five of them
	atOnce    int           // prompts
	sleeps    bool          // between its prompts
	completed atomic.Int64
}

func (u *upgrade) subject(t *testing.T, body object) *subject {
	t.Helper()
	s := u.newSubject(t, body)
	u.subjects = append(u.subjects, s)
	return s
}

// begin puts sessions into every state, and starts the flows.
func (u *upgrade) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u.stop = cancel
	t.Cleanup(func() {
		cancel()
		u.flowing.Wait()
	})
	for n, pause := range []time.Duration{0, 300 * time.Millisecond, time.Second, 3 * time.Second} {
		f := &flow{subject: u.subject(t, nil), pause: pause, atOnce: 1 + n%2}
		if pause < time.Second { // a flow without rests would use as much CPU time as there is
			f.rest = 2 * time.Second
		}
		if f.sleeps = pause == 3*time.Second; f.sleeps {
			u.must(t, http.StatusOK, "PATCH", "/api/sessions/"+f.id, object{"idleTimeout": "1s"})
		}
		u.flows = append(u.flows, f)
		u.flowing.Go(func() { u.flow(ctx, f) })
	}

	asleep := u.subject(t, nil)
	asleep.run(t, "before")
	asleep.sleep(t)
	u.asleep = append(u.asleep, asleep)

	u.subject(t, nil).run(t, "before") // it is awake, and idle

	lazy := u.subject(t, nil) // it has had no prompt
	u.open = append(u.open, func() { lazy.send(t.Context(), "first", "") })

	turn := u.subject(t, nil) // in a turn, with prompts waiting for its end
	turn.run(t, "before")
	turn.send(t.Context(), "long", "", u.hits.gate(turn.id))
	u.hits.wait(t, turn.name("long"), settleWithin)
	for n := range 3 {
		turn.send(t.Context(), fmt.Sprint("waits", n), "")
	}
	u.open = append(u.open, func() { u.hits.open(turn.id) })

	asks := u.subject(t, object{"options": object{"questionTimeout": "1h"}})
	asks.send(t.Context(), "asks", "", "ask: Which colour? | Red | Blue")
	u.asked(t, asks.id)
	u.open = append(u.open, func() {
		q := u.asked(t, asks.id)
		require.Less(t, asks.order("POST", fmt.Sprintf("questions/%s/answer", q["id"]), object{"answers": object{"Which colour?": "Red"}}), 300)
	})

	failed := u.subject(t, object{"workspace": object{"setup": u.hits.command("setup")}})
	u.hits.answer("setup", false)
	failed.send(t.Context(), "first", "")
	u.waitStatus(t, failed.id, "error", settleWithin)
	u.open = append(u.open, func() {
		u.hits.answer("setup", true)
		require.Less(t, failed.order("POST", "recover", nil), 300)
	})
}

// flow sends prompts until ctx ends.
func (u *upgrade) flow(ctx context.Context, f *flow) {
	for n, begun := 0, 0; ctx.Err() == nil; {
		begun++
		var sent []string
		for range f.atOnce {
			n++
			sent = append(sent, fmt.Sprint("flow", n))
			f.send(context.WithoutCancel(ctx), sent[len(sent)-1], "")
		}
		for _, id := range sent {
			for done := false; !done; {
				_, got, err := u.call("GET", "/api/sessions/"+f.id+"/prompts/"+id, nil)
				if err == nil && got["status"] == "completed" {
					f.completed.Add(1)
					break
				}
				select {
				case <-ctx.Done():
					done = true
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
		pause := f.pause
		if begun%5 == 0 {
			pause += f.rest
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// progress waits until each flow has completed some more prompts, and a sleeping session has woken
// and hibernated again; then it starts a session and hibernates another for the next phase.
func (u *upgrade) progress(t *testing.T, phase string) {
	t.Helper()
	begun := time.Now()
	had := make([]int64, len(u.flows))
	for i, f := range u.flows {
		had[i] = f.completed.Load()
	}
	for _, s := range u.asleep {
		s.run(t, fmt.Sprintf("woken%d", len(s.prompts)))
	}
	fresh := u.subject(t, nil)
	fresh.run(t, "first")
	fresh.sleep(t)
	again := u.asleep[0]
	again.sleep(t)
	u.asleep = []*subject{fresh, again}
	for i, f := range u.flows {
		eventually(t, 3*time.Minute, fmt.Sprintf("session %s makes progress with %s", f.id, phase), func() error {
			if n := f.completed.Load(); n < had[i]+2 {
				return fmt.Errorf("%d prompts more", n-had[i])
			}
			return nil
		})
	}
	t.Logf("%s with %s", time.Since(begun).Round(time.Millisecond), phase)
}

// replaceWorker runs a new worker alongside the old one, and then alone.
func (u *upgrade) replaceWorker(t *testing.T, end func(*server, *testing.T)) {
	t.Helper()
	old := u.worker
	u.worker = u.startWorker(t, "worker-now", u.now)
	u.progress(t, "workers of both releases")
	end(old, t)
	u.progress(t, "the new worker")
}

func (u *upgrade) replaceAPI(t *testing.T) {
	t.Helper()
	old := u.api
	u.api = u.startAPI(t, "api-now", u.now)
	u.progress(t, "apis of both releases")
	u.stopAPI(t, old)
	u.progress(t, "the new api")
}

// end waits until everything has ended, and audits all sessions.
func (u *upgrade) end(t *testing.T) {
	t.Helper()
	u.stop()
	u.flowing.Wait()
	for _, open := range u.open {
		open()
	}
	prompts := 0
	for _, s := range u.subjects {
		s.senders.Wait()
		eventually(t, 3*time.Minute, "the prompts of "+s.id+" end", func() error { return s.unsettled(false) })
	}
	for _, f := range u.flows {
		if f.sleeps { // an audit needs a session that doesn't change its state
			u.waitStatus(t, f.id, "hibernated", settleWithin)
		}
	}
	for _, s := range u.subjects {
		s.audit(t)
		for _, p := range s.prompts {
			prompts++
			got := u.must(t, http.StatusOK, "GET", "/api/sessions/"+s.id+"/prompts/"+p.id, nil)
			if n := u.hits.count(s.name(p.id)); got["status"] != "completed" || n != 1 {
				t.Errorf("prompt %s of %s ran %d times and is %v (%v)", p.id, s.id, n, got["status"], got["reason"])
			}
		}
	}
	u.checkLedgers(t, u.subjects)
	t.Logf("%d prompts of %d sessions, each ran once", prompts, len(u.subjects))
	for _, s := range u.subjects {
		s.end(t)
	}
}
