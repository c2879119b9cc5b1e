package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// measureWords makes many sessions print at a steady pace, and sends prompts to one more.
func measureWords(ctx context.Context, b *bench, s *section) error {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	o := b.options
	s.note("%d sessions speak, a word every %s each, each with a reader. First only they do, for %s: that gives the CPU time of a word, from the agent "+
		"to the reader's socket, and its delay. Then one more session gets prompts, alternating with the floors.", o.Sessions, o.Pause, o.Window)
	s.note("*Word → reader* starts at the agent's own time of the word, rounded down to its millisecond, and ends when the reader has the whole event. " +
		"An event may hold several words; each counts from its own time.")
	crowd, err := startCrowd(ctx, sys.client, o.Sessions, o.Pause, turnLength)
	if err != nil {
		return err
	}
	defer crowd.stop(context.WithoutCancel(ctx))

	before, began := readCPU(sys.pid()), time.Now()
	crowd.words.recording.Store(true)
	if err := pause(ctx, o.Window); err != nil {
		return err
	}
	crowd.words.recording.Store(false)
	used, took := readCPU(sys.pid()).since(before), time.Since(began)
	words := int(crowd.words.words.Load())

	p, err := newProbe(ctx, sys.client, 2)
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	l := &life{}
	if err := p.promptRounds(ctx, sys.bare, o.Rounds, o.Limit, l); err != nil {
		return fmt.Errorf("prompts: %w", err)
	}

	s.compare("word → reader", distribution(&crowd.words.delay), "line of an exec + commit", distribution(sum(&l.floors.line, &l.floors.commit)),
		quantiles(20*time.Millisecond, 80*time.Millisecond))
	s.add("words at the readers", number(float64(words)/took.Seconds(), perSecond), noGoal)
	s.add("words per event", number(float64(words)/float64(max(1, crowd.words.events.Load())), count), noGoal)
	// A third of the minimum of 1.2 to 1.6 ms, the cost of a word before that goal was set.
	used.addTo(s, "word", words, atMost(number(0.4e-3, seconds)))
	s.add("cores used by the system", number(used.system().Seconds()/took.Seconds(), cores), noGoal)
	s.add("cores used by the bench", number(used[benchCPU].Seconds()/took.Seconds(), cores), noGoal)
	s.add("cores used by others", number(used[othersCPU].Seconds()/took.Seconds(), cores), noGoal)
	f := &l.floors
	s.compare("meanwhile: prompt → 202", distribution(&l.prompts.accepted), "commit + signal", distribution(sum(&f.commit, &f.signal)), noGoal)
	s.compare("meanwhile: prompt → agent has it", distribution(&l.prompts.firstWord), "signal → activity + commit + exec",
		distribution(sum(&f.activity, &f.commit, &f.exec)), noGoal)
	return crowd.err()
}

// pause returns after d.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rowsPerCommit is the approximate size of a commit of the event log under load.
const rowsPerCommit = 500

// measureBurst makes every session print its words without a pause.
func measureBurst(ctx context.Context, b *bench, s *section) error {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	o := b.options
	s.note("%d agents say %d words each without a pause, from the first word of any agent until the last event has reached its reader. "+
		"The floor is one connection that stores a row of the size of an event per word, with COPY, %d rows per commit.", o.Sessions, o.Burst, rowsPerCommit)
	probes, err := newProbes(ctx, sys.client, o.Sessions)
	defer closeProbes(context.WithoutCancel(ctx), sys.client, probes)
	if err != nil {
		return err
	}
	before := readCPU(sys.pid())
	words, events, took, err := burst(ctx, probes, o.Burst)
	if err != nil {
		return err
	}
	used := readCPU(sys.pid()).since(before)
	rows, err := sys.bare.rowsPerSecond(ctx)
	if err != nil {
		return err
	}
	// Three times the 2,818 events per second of the version before that goal was set, when every word was an event.
	s.compare("words delivered", number(float64(words)/took.Seconds(), perSecond), "rows stored", number(rows, perSecond), atLeast(number(3*2818, perSecond)))
	s.add("events delivered", number(float64(events)/took.Seconds(), perSecond), noGoal)
	used.addTo(s, "word of a burst", words, noGoal)
	return nil
}

// newProbes creates demo sessions that have run one prompt each.
func newProbes(ctx context.Context, c *client, n int) ([]*probe, error) {
	probes := make([]*probe, n)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range probes {
		group.Go(func() (err error) {
			probes[i], err = newProbe(ctx, c, 1)
			return err
		})
	}
	return probes, group.Wait()
}

// closeProbes ends the sessions and waits until their sandboxes are terminated.
func closeProbes(ctx context.Context, c *client, probes []*probe) {
	var sessions []string
	for _, p := range probes {
		if p != nil {
			p.leave()
			sessions = append(sessions, p.session)
		}
	}
	c.stopAll(ctx, sessions) //nolint:errcheck // the measurement is complete
}

// burst makes every session print n words at once, and returns how many words and events arrived
// and how long that took.
func burst(ctx context.Context, probes []*probe, n int) (words, events int, took time.Duration, err error) {
	text := strings.TrimSpace(strings.Repeat("word ", n))
	var mu sync.Mutex
	var first, last time.Time
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range probes {
		group.Go(func() error {
			if err := p.client.prompt(ctx, p.session, "burst", text); err != nil {
				return err
			}
			received, seen := 0, 0
			var began time.Time
			end, err := p.await(ctx, "end of the burst", func(e event) bool {
				seen++
				if e.Type == "text_delta" {
					received += e.words()
				}
				if began.IsZero() && e.Type == "block_start" && e.Data.Block.Type == "assistant_text" {
					began = e.At
				}
				return e.Type == "turn_end"
			})
			if err != nil {
				return err
			}
			if received != n {
				return fmt.Errorf("%d of %d words arrived", received, n)
			}
			mu.Lock()
			defer mu.Unlock()
			words, events = words+received, events+seen
			if first.IsZero() || began.Before(first) {
				first = began
			}
			if end.arrived.After(last) {
				last = end.arrived
			}
			return nil
		})
	}
	err = group.Wait()
	return words, events, last.Sub(first), err
}

// rowsPerSecond returns how many rows of the length of an event one connection stores per second.
func (b *bare) rowsPerSecond(ctx context.Context) (float64, error) {
	const commits = 40
	data := strings.Repeat("x", 80)
	began := time.Now()
	for range commits {
		rows := make([][]any, rowsPerCommit)
		for i := range rows {
			b.commits++
			rows[i] = []any{b.commits, began, data}
		}
		if _, err := b.postgres.CopyFrom(ctx, pgx.Identifier{"bench"}, []string{"id", "at", "data"}, pgx.CopyFromRows(rows)); err != nil {
			return 0, fmt.Errorf("rows: %w", err)
		}
	}
	return commits * rowsPerCommit / time.Since(began).Seconds(), nil
}
