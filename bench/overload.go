package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// measureOverload determines the capacity of the system, applies twice that load, and measures the
// system during and after it.
func measureOverload(ctx context.Context, b *bench, s *section) error {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	n := b.options.Sessions
	probes, err := newProbes(ctx, sys.client, n+1)
	defer closeProbes(context.WithoutCancel(ctx), sys.client, probes)
	if err != nil {
		return err
	}
	crowd, quiet := probes[:n], probes[n]
	calm := &prompts{}
	for range 20 {
		if err := quiet.turn(ctx, calm); err != nil {
			return err
		}
	}
	words, _, took, err := burst(ctx, crowd, b.options.Burst)
	if err != nil {
		return err
	}
	capacity := float64(words) / took.Seconds()
	pace := time.Duration(float64(n) / (2 * capacity) * float64(time.Second)).Round(100 * time.Microsecond)
	s.note("%d agents speaking without a pause had %.0f words per second delivered. Then they speak for %s with a pause of %s, which is twice that, and are aborted; one more session has prompts. "+
		"*Afterwards* begins %s after the abort.", n, capacity, b.options.Window, pace, b.options.Window)

	losses, err := sys.bare.secondAttempts(ctx)
	if err != nil {
		return err
	}
	during := &prompts{}
	spoken, err := overload(ctx, crowd, pace, b.options.Window, func() error { return quiet.turn(ctx, during) })
	if err != nil {
		return err
	}
	if err := pause(ctx, b.options.Window); err != nil {
		return err
	}
	after := &prompts{}
	for range 20 {
		if err := quiet.turn(ctx, after); err != nil {
			return err
		}
	}
	lost, err := sys.bare.secondAttempts(ctx)
	if err != nil {
		return err
	}
	s.compare("prompt → agent has it, afterwards", distribution(&after.firstWord), "before", distribution(&calm.firstWord), within(1.5))
	s.compare("prompt → agent has it, in the overload", distribution(&during.firstWord), "before", distribution(&calm.firstWord), noGoal)
	s.add("attempts at turns beyond the first", number(float64(lost-losses), count), atMost(number(0, count)))
	slices.Sort(spoken)
	s.compare("words of the session with the fewest", number(float64(spoken[0]), count), "of the session with the most", number(float64(spoken[len(spoken)-1]), count), reaches(0.5))
	return nil
}

// overload makes sessions print at a pace for a while, and returns how many words of each arrived.
// It calls alongside until the time has passed.
func overload(ctx context.Context, crowd []*probe, pace, during time.Duration, alongside func() error) ([]int, error) {
	text := fmt.Sprintf("slow %s: %s", pace, strings.Repeat("word ", min(50_000, 4*int(during/max(pace, time.Microsecond)))))
	spoken := make([]int, len(crowd))
	began := time.Now()
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range crowd {
		group.Go(func() error {
			if err := p.client.prompt(groupCtx, p.session, "overload", text); err != nil {
				return err
			}
			aborted := false
			_, err := p.await(groupCtx, "end of the turn", func(e event) bool {
				if e.Type == "text_delta" && time.Since(began) < during {
					mu.Lock()
					spoken[i] += e.words()
					mu.Unlock()
				}
				if !aborted && time.Since(began) >= during {
					aborted = true
					if err := p.client.command(groupCtx, p.session, "abort"); err != nil {
						return true // the turn has ended, or the next event shows it
					}
				}
				return e.Type == "turn_end"
			})
			return err
		})
	}
	for time.Since(began) < during {
		if err := alongside(); err != nil {
			return nil, err
		}
	}
	return spoken, group.Wait()
}

// secondAttempts returns the number of attempts at turns beyond the first of each.
func (b *bare) secondAttempts(ctx context.Context) (int64, error) {
	var n int64
	err := b.postgres.QueryRow(ctx, "SELECT coalesce(sum(greatest(attempt - 1, 0)), 0)::bigint FROM runs").Scan(&n)
	return n, err
}
