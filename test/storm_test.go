package test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The short form of the storm, one round, is part of every run of the tests. CONTRIBUTING.md
// explains how to run a longer storm, and how to repeat a failed round.
var (
	stormSeed    = flag.Uint64("seed", 0, "seed of the storm's first round; 0 for that of the short form, or for any with -minutes")
	stormMinutes = flag.Float64("minutes", 0, "minutes after which the storm begins no other round; 0 for a single short one")
)

// shortSeed is the seed of the short forms. The storm draws two faults and almost every command from it.
const shortSeed = 15

// TestStorm injects faults while sessions are in every state. The faults and commands are drawn
// from a seed, which is printed; each round increments the seed of the previous one.
//
//	a round    subjects are brought to their states ─▶ faults, with prompts and commands meanwhile
//	           ─▶ every prompt ends by itself ─▶ audit
func TestStorm(t *testing.T) {
	t.Parallel()
	seed := chosenSeed(*stormMinutes > 0)
	r := startWholeRig(t, 1)
	s := &storm{rig: r, apart: newProxy(t, r.dialPostgres), longest: 12 * time.Second}
	r.addWorker(t, s.apart)
	until := time.Now()
	if *stormMinutes > 0 {
		s.longest = 35 * time.Second
		until = until.Add(time.Duration(*stormMinutes * float64(time.Minute)))
	}
	for first := true; first || time.Now().Before(until); seed++ {
		first = false
		s.round(t, seed)
		if t.Failed() {
			return
		}
	}
	for _, subject := range s.pool {
		subject.checkLedger(t)
		subject.end(t)
	}
	r.nothingIsLeft(t, settleWithin)
}

// chosenSeed returns the seed of the command line. Without one, a run of all tests always has the
// same seed, so that a failure comes from a change, and a longer run has any.
func chosenSeed(long bool) uint64 {
	switch {
	case *stormSeed != 0:
		return *stormSeed
	case long:
		return uint64(rand.Uint32())
	}
	return shortSeed
}

type storm struct {
	*rig
	apart   *proxy // between Postgres and the second worker alone
	longest time.Duration
	pool    []*actor // sessions that have survived a round
	made    int      // prompts
}

// actor is a subject with its client's operations in a round.
type actor struct {
	*subject
	state string // when the faults begin
	ops   []op
	setup string // the name by which its setup script is counted, in the state error
}

// op is an operation of a client, with its time after the faults begin.
type op struct {
	at   time.Duration
	what string
	id   string
}

// stormStates are the states of sessions when faults begin, in the order in which they are entered:
// short-lived ones last.
var stormStates = []string{
	"error", "idle", "hibernated", "restoring", "hibernating", "at the begin of a turn", "question",
	"in the middle of a turn", "at the end of a turn", "initializing",
}

// A round of the storm, as drawn.
type stormRound struct {
	faults []stormFault
	ops    [][]op // by state
	jitter []time.Duration
}

type stormFault struct {
	name   string
	at     time.Duration
	strike func(t *testing.T)
}

func (s *storm) draw(rng *rand.Rand) stormRound {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)+1))
	}
	var round stormRound
	span := time.Duration(0)
	for range 1 + rng.IntN(2) {
		f := s.drawFault(rng, between)
		f.at = between(0, 3*time.Second)
		round.faults = append(round.faults, f)
		span = max(span, f.at+s.longest/2)
	}
	whats := []string{
		"prompt", "prompt", "prompt", "prompt retry", "prompt fail", "hibernate", "hibernate force", "wake", "abort", "sync",
		"restart", "recover", "withdraw", "settings", "answer", "huge", "stop",
	}
	for range stormStates {
		var ops []op
		for range 1 + rng.IntN(3) {
			s.made++
			ops = append(ops, op{between(0, span), whats[rng.IntN(len(whats))], fmt.Sprintf("p%d", s.made)})
		}
		round.ops = append(round.ops, ops)
		round.jitter = append(round.jitter, between(0, 300*time.Millisecond))
	}
	return round
}

func (s *storm) drawFault(rng *rand.Rand, between func(least, most time.Duration) time.Duration) stormFault {
	parts := []part{partWorker, partAPI, partLocalModal, partTemporal, partPostgres, partRunner, partAgent, partAttach}
	p, d, pick := parts[rng.IntN(len(parts))], between(s.longest/6, s.longest), rng.Uint64()
	one := func() []int { // of the part's processes
		pids := s.pids(p)
		if len(pids) == 0 {
			return nil
		}
		i := int(pick % uint64(len(pids)))
		return pids[i : i+1]
	}
	link := []*proxy{s.database, s.engine, s.apart}[rng.IntN(3)]
	name := map[*proxy]string{s.database: "Postgres", s.engine: "Temporal", s.apart: "Postgres from one worker"}[link]
	switch rng.IntN(10) {
	case 0:
		return stormFault{name: fmt.Sprintf("%s frozen for %s", p, d), strike: func(*testing.T) { freeze(s.pids(p), d) }}
	case 1:
		return stormFault{name: fmt.Sprintf("one %s frozen for %s", p, d), strike: func(*testing.T) { freeze(one(), d) }}
	case 2:
		return stormFault{name: fmt.Sprintf("workers frozen for %s", d), strike: func(*testing.T) { freeze(s.pids(partWorker), d) }}
	case 3:
		if p == partPostgres { // nothing would restart the postmaster
			return stormFault{name: "a Postgres backend killed", strike: func(*testing.T) {
				for _, pid := range s.pids(partPostgres) {
					if pid != s.postgres.pid {
						kill([]int{pid})
						return
					}
				}
			}}
		}
		return stormFault{name: fmt.Sprintf("%s killed", p), strike: func(*testing.T) { kill(s.pids(p)) }}
	case 4:
		return stormFault{name: fmt.Sprintf("one %s killed twice", p), strike: func(*testing.T) {
			if p == partPostgres {
				return
			}
			kill(one())
			<-time.After(d / 4)
			kill(one())
		}}
	case 5:
		return stormFault{name: fmt.Sprintf("%s refused for %s", name, d), strike: func(t *testing.T) { link.refuse(t, d) }}
	case 6:
		return stormFault{name: fmt.Sprintf("%s silent for %s", name, d), strike: func(*testing.T) { link.stall(d) }}
	case 7:
		by := between(50*time.Millisecond, time.Second)
		return stormFault{name: fmt.Sprintf("%s %s late for %s", name, by, d), strike: func(*testing.T) { link.slow(by, d) }}
	case 8:
		times := 1 + rng.IntN(8)
		return stormFault{name: fmt.Sprintf("%s reset %d times", name, times), strike: func(*testing.T) {
			for range times {
				link.reset()
				<-time.After(d / 10)
			}
		}}
	default:
		i := rng.IntN(len(stormStates))
		return stormFault{name: fmt.Sprintf("row %d locked for %s", i, d), strike: func(t *testing.T) {
			s.lockRow(t, s.pool[min(i, len(s.pool)-1)].id, d)
		}}
	}
}

func (s *storm) round(t *testing.T, seed uint64) {
	t.Helper()
	round := s.draw(rand.New(rand.NewPCG(seed, 0)))
	var names []string
	for _, f := range round.faults {
		names = append(names, fmt.Sprintf("%s at %s", f.name, f.at))
	}
	t.Logf("round -seed %d: %s", seed, strings.Join(names, "; "))
	old := s.pool
	s.pool = nil
	ctx, cancel := context.WithTimeout(t.Context(), s.longest+settleWithin)
	defer cancel()
	for i, state := range stormStates {
		a := &actor{state: state, ops: round.ops[i]}
		if len(old) > 0 && state != "initializing" && state != "error" {
			a.subject = old[0].subject
			old = old[1:]
		}
		s.prepare(t, ctx, a)
		s.pool = append(s.pool, a)
	}
	for _, rest := range old {
		rest.checkLedger(t)
		rest.end(t)
	}

	var striking, acting sync.WaitGroup
	for i, a := range s.pool {
		acting.Go(func() { s.enter(ctx, a, round.jitter[i]) })
	}
	begun := time.Now()
	for _, f := range round.faults {
		striking.Go(func() {
			<-time.After(f.at)
			f.strike(t)
		})
	}
	for _, a := range s.pool {
		for _, o := range a.ops {
			acting.Go(func() {
				<-time.After(o.at)
				s.act(ctx, a, o)
			})
		}
	}
	striking.Wait()
	until := time.Now()
	acting.Wait()
	t.Logf("faults over after %s", until.Sub(begun).Round(time.Millisecond))
	s.calm(t)
	t.Logf("settled %s after the last fault", time.Since(until).Round(time.Millisecond))
	var kept []*actor
	for _, a := range s.pool {
		a.audit(t)
		if !a.stopped {
			kept = append(kept, a)
		}
	}
	if t.Failed() {
		for _, a := range s.pool {
			t.Logf("%s was %s; ops %v", a.id, a.state, a.ops)
		}
	}
	s.pool = kept
}

// prepare brings a session to the point from which enter reaches its state at once.
func (s *storm) prepare(t *testing.T, ctx context.Context, a *actor) { //nolint:revive // the test first, as everywhere
	t.Helper()
	if a.state == "initializing" {
		a.subject = s.newSubject(t, object{"workspace": object{"setup": "sleep 3"}})
		a.send(ctx, s.prompt(), "")
		return
	}
	if a.state == "error" {
		s.made++
		a.setup = fmt.Sprintf("setup%d", s.made)
		s.hits.answer(a.setup, false)
		a.subject = s.newSubject(t, object{"workspace": object{"setup": s.hits.command(a.setup)}})
		a.send(ctx, s.prompt(), "")
		a.waitStatus(t, a.id, "error", settleWithin)
		return
	}
	if a.subject == nil {
		a.subject = s.newSubject(t, nil)
	}
	a.run(t, s.prompt())
	switch a.state {
	case "hibernated", "restoring":
		a.sleep(t)
	case "question":
		a.send(ctx, s.prompt(), "", "ask: Which colour? | Red | Blue")
		s.asked(t, a.id)
	case "in the middle of a turn":
		id := s.prompt()
		a.send(ctx, id, "", "slow 200ms: "+strings.Repeat("word ", 40))
		s.hits.wait(t, a.name(id), settleWithin)
	case "at the end of a turn":
		id := s.prompt()
		a.send(ctx, id, "", "sleep 1500ms")
		s.hits.wait(t, a.name(id), settleWithin)
	}
}

func (s *storm) prompt() string {
	s.made++
	return fmt.Sprintf("p%d", s.made)
}

// enter puts a session into a short-lived state.
func (s *storm) enter(ctx context.Context, a *actor, jitter time.Duration) {
	<-time.After(jitter)
	switch a.state {
	case "restoring", "at the begin of a turn":
		a.send(ctx, fmt.Sprintf("enter%d", len(a.prompts)), "", "sleep 1s")
	case "hibernating":
		a.order("POST", "hibernate", nil)
	}
}

// act executes an operation of a client once; only prompts are resent.
func (s *storm) act(ctx context.Context, a *actor, o op) {
	switch o.what {
	case "prompt":
		a.send(ctx, o.id, "", "sleep 500ms")
	case "prompt retry", "prompt fail":
		a.send(ctx, o.id, strings.TrimPrefix(o.what, "prompt "), "sleep 500ms")
	case "huge":
		a.send(ctx, o.id, "", "$ head -c 20000000 /dev/zero | tr '\\0' x")
	case "withdraw":
		a.send(ctx, o.id, "")
		a.order("DELETE", "prompts/"+o.id, nil)
	case "hibernate force":
		a.order("POST", "hibernate", object{"force": true})
	case "settings":
		a.order("PATCH", "", object{"title": "title " + o.id})
	case "answer":
		s.answerAll(a)
	default:
		a.order("POST", o.what, nil)
	}
}

// answerAll answers the open questions of a session.
func (s *storm) answerAll(a *actor) {
	_, page, err := s.call("GET", "/api/sessions/"+a.id+"/questions?status=open", nil)
	if err != nil {
		return
	}
	items, _ := page["items"].([]any)
	for _, q := range items {
		a.order("POST", fmt.Sprintf("questions/%s/answer", q.(object)["id"]), object{"answers": object{"Which colour?": "Red"}})
	}
}

// calm waits until every prompt has ended by itself. It intervenes only where a person must: it
// answers questions, and recovers the session whose setup script failed.
func (s *storm) calm(t *testing.T) {
	t.Helper()
	for _, a := range s.pool {
		a.senders.Wait()
		if a.setup != "" {
			s.hits.answer(a.setup, true)
			eventually(t, settleWithin, "the session can be recovered", func() error {
				status := a.order("POST", "recover", nil)
				if status == http.StatusAccepted || status == http.StatusOK || status == http.StatusConflict {
					return nil
				}
				return fmt.Errorf("%d", status)
			})
		}
	}
	for _, a := range s.pool {
		eventually(t, settleWithin, "the prompts of "+a.id+", which was "+a.state+", end", func() error {
			s.answerAll(a)
			if a.setup != "" { // an earlier recovery may have run the old script
				a.recoverFromError()
			}
			return a.unsettled(false)
		})
	}
	require.NotEmpty(t, s.pool)
}
