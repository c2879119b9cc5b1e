package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// The goal for one worker: the number of streaming sessions, the number of sleeping sessions with
// an open workflow, and the memory for both.
const (
	goalStreams = 1000
	goalOpen    = 20_000
	goalMemory  = 2 << 30
)

// cachedWorkflows is the default of --cached-workflows: the number of open workflows that a worker
// keeps in memory. It reads the history of any other workflow again when that workflow has to act.
const cachedWorkflows = 4000

// slower is the factor by which the turns of a session, and the pauses between its words, are
// longer than under load. This part measures the cost of a session, not the cost of its words.
const slower = 100

const (
	// opensAtOnce bounds the sessions that are created before their workflows are open.
	opensAtOnce = 200
	// openStall is how long to wait for the next workflow to open before the missing sessions are
	// replaced by new ones.
	openStall = 10 * time.Second
)

// measureWorker measures the cost to a worker of sleeping sessions with an open workflow, and of
// sessions with a running turn.
func measureWorker(ctx context.Context, b *bench, s *section) (err error) {
	if err := b.release(ctx); err != nil {
		return err
	}
	sys, err := b.newSystem(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.close(context.WithoutCancel(ctx))) }()
	o := b.options
	streamPause := slower * o.Pause
	s.note("One worker has at least %d sessions that sleep and whose workflows are open, and then, alongside them, %d and %d sessions that stream, a word every %s each. Memory is the resident set of the worker's "+
		"process %s after the last session has come, with the garbage of that moment; *in use* is what its last garbage collection left, with the stacks. Connections are its open files. "+
		"*Each* is the growth from one row to the next, divided by the sessions that came; %d workflows at most are in memory. The last row is the measured memory if there are %d sessions that stream and "+
		"%d that sleep; otherwise it is twice what so many sessions would have in use, because about as much garbage accumulates.", o.Open, o.Streams/2, o.Streams, streamPause, o.Window, cachedWorkflows, goalStreams, goalOpen)

	p, err := newProbe(ctx, sys.client, 1) // the worker has done everything once
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	none, err := sys.workerNeeds(ctx, o.Window)
	if err != nil {
		return err
	}
	b.logf("worker: opening %d sessions", o.Open)
	if err := sys.openSleepers(ctx, o.Open); err != nil {
		return err
	}
	opened, err := sys.openSessions(ctx)
	if err != nil {
		return err
	}
	open, err := sys.workerNeeds(ctx, o.Window)
	if err != nil {
		return err
	}
	some := map[int]needs{}
	for _, n := range []int{o.Streams / 2, o.Streams} {
		b.logf("worker: %d sessions stream", n)
		crowd, err := startCrowd(ctx, sys.client, n-len(some)*(o.Streams/2), streamPause, slower*turnLength)
		if err != nil {
			return err
		}
		defer crowd.stop(context.WithoutCancel(ctx))
		if some[n], err = sys.workerNeeds(ctx, o.Window); err != nil {
			return errors.Join(err, crowd.err())
		}
	}
	half, full := some[o.Streams/2], some[o.Streams]
	none.addTo(s, "no session")
	open.addTo(s, fmt.Sprintf("%d open", opened))
	half.addTo(s, fmt.Sprintf("%d open, %d streaming", opened, o.Streams/2))
	full.addTo(s, fmt.Sprintf("%d open, %d streaming", opened, o.Streams))
	sleeper, first, stream := open.since(none, min(opened, cachedWorkflows)), half.since(open, o.Streams/2), full.since(half, o.Streams-o.Streams/2)
	sleeper.addTo(s, "each open session")
	first.addTo(s, "each streaming session of the first half")
	stream.addTo(s, "each streaming session of the second half")
	streams := full.since(open, o.Streams)
	name, memory := "memory for %d open and %d streaming sessions, estimated from memory in use", none.memory+2*(cachedWorkflows*sleeper.inUse+goalStreams*streams.inUse)
	if opened >= goalOpen && o.Streams >= goalStreams {
		name, memory = "memory for %d open and %d streaming sessions", full.memory
	}
	s.add(fmt.Sprintf(name, goalOpen, goalStreams), number(memory, byteSize), atMost(number(goalMemory, byteSize)))
	return nil
}

// needs are the resources that a worker uses.
type needs struct{ memory, inUse, goroutines, files float64 }

func (n needs) addTo(s *section, of string) {
	s.add("memory: "+of, number(n.memory, byteSize), noGoal)
	s.add("in use: "+of, number(n.inUse, byteSize), noGoal)
	s.add("goroutines: "+of, number(n.goroutines, count), noGoal)
	s.add("connections: "+of, number(n.files, count), noGoal)
}

// since returns the growth per session since an earlier reading.
func (n needs) since(before needs, sessions int) needs {
	by := float64(max(1, sessions))
	return needs{(n.memory - before.memory) / by, (n.inUse - before.inUse) / by, (n.goroutines - before.goroutines) / by, (n.files - before.files) / by}
}

// workerNeeds reads the worker's metrics once its load has settled and a garbage collection has
// followed.
func (s *system) workerNeeds(ctx context.Context, settle time.Duration) (needs, error) {
	if err := pause(ctx, settle); err != nil {
		return needs{}, err
	}
	settled := float64(time.Now().Unix())
	url, err := s.workerMetricsURL()
	if err != nil {
		return needs{}, err
	}
	n, err := workerMetrics(ctx, url)
	if err != nil {
		return needs{}, err
	}
	for {
		// The responses are garbage themselves, which triggers the worker's next collection.
		latest, err := workerMetrics(ctx, url)
		if err != nil {
			return needs{}, err
		}
		if latest["go_memstats_last_gc_time_seconds"] <= settled {
			continue
		}
		return needs{
			memory: n["process_resident_memory_bytes"], goroutines: n["go_goroutines"], files: n["process_open_fds"],
			// The next collection starts at twice the size of the stacks and of the heap that the
			// last one left.
			inUse: (latest["go_memstats_next_gc_bytes"] + latest["go_memstats_stack_inuse_bytes"]) / 2,
		}, nil
	}
}

// workerMetricsURL returns the address of the worker's metrics.
func (s *system) workerMetricsURL() (string, error) {
	processes := readProcesses()
	argv := processes[processes.child(workerCPU, s.pid())].argv
	at := slices.Index(argv, "--health-address")
	if at < 0 || at+1 == len(argv) {
		return "", errors.New("the worker has no address for its metrics")
	}
	return "http://" + argv[at+1] + "/metrics", nil
}

// workerMetrics returns the worker's metrics without labels.
func workerMetrics(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	metrics := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") || strings.Contains(name, "{") {
			continue
		}
		if metrics[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, err
		}
	}
	return metrics, lines.Err()
}

// openSleepers creates sessions without a sandbox and returns when all of their workflows are open.
// It does not create sessions faster than the worker opens them: a signal that Temporal does not
// accept in time is lost. The workflow of that lazy session is then opened only by its first
// prompt, so another session must replace it.
func (s *system) openSleepers(ctx context.Context, sessions int) error {
	open := 0
	for grown := time.Now(); open < sessions; {
		if time.Since(grown) > waitLimit {
			return fmt.Errorf("%d of %d sessions were opened, and no other within %s", open, sessions, waitLimit)
		}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for range min(sessions-open, opensAtOnce) {
			group.Go(func() error {
				_, err := s.client.create(groupCtx, "demo")
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		enough := min(open+opensAtOnce, sessions)
		for deadline := time.Now().Add(openStall); open < enough && time.Now().Before(deadline); {
			if err := pause(ctx, time.Second/4); err != nil {
				return err
			}
			now, err := s.openSessions(ctx)
			if err != nil {
				return err
			}
			if now > open {
				open, grown, deadline = now, time.Now(), time.Now().Add(openStall)
			}
		}
	}
	return nil
}

// openSessions returns the number of sessions with an open workflow.
func (s *system) openSessions(ctx context.Context) (open int, err error) {
	err = s.bare.postgres.QueryRow(ctx, "SELECT count(*) FROM sessions WHERE loaded").Scan(&open)
	return open, err
}
