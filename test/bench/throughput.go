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

// throughput is how many events a second are committed and read when all agents speak at once.
type throughput struct {
	sessions int
	events   int
	took     time.Duration // first word of any agent until the last event is here
	rows     float64       // per second, in bare commits of rowsPerCommit
}

func (t throughput) rate() float64 { return float64(t.events) / t.took.Seconds() }

// rowsPerCommit is about what a commit of the event log has under such a load.
const rowsPerCommit = 500

// measureThroughput has every session say its words without a pause.
func measureThroughput(ctx context.Context, o options, b *bare, c *client) (throughput, error) {
	out := throughput{sessions: o.Sessions}
	probes := make([]*probe, o.Sessions)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range probes {
		group.Go(func() (err error) {
			probes[i], err = newProbe(ctx, c, 1)
			return err
		})
	}
	err := group.Wait()
	defer func() {
		var closing errgroup.Group
		closing.SetLimit(8)
		for _, p := range probes {
			if p != nil {
				closing.Go(func() error { p.close(context.WithoutCancel(ctx)); return nil })
			}
		}
		closing.Wait() //nolint:errcheck // none is returned
	}()
	if err != nil {
		return out, err
	}

	text := strings.TrimSpace(strings.Repeat("word ", o.Burst))
	var mu sync.Mutex
	var first, last time.Time
	bursts, burstCtx := errgroup.WithContext(ctx)
	for _, p := range probes {
		bursts.Go(func() error {
			if err := c.prompt(burstCtx, p.session, "burst", text); err != nil {
				return err
			}
			events := 0
			var began time.Time
			end, err := p.await(burstCtx, "end of the burst", func(e event) bool {
				events++
				if began.IsZero() && e.Type == "text_delta" {
					began = e.At
				}
				return e.Type == "turn_end"
			})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.events += events
			if first.IsZero() || began.Before(first) {
				first = began
			}
			if end.arrived.After(last) {
				last = end.arrived
			}
			return nil
		})
	}
	if err := bursts.Wait(); err != nil {
		return out, err
	}
	out.took = last.Sub(first)
	out.rows, err = b.rowsPerSecond(ctx)
	return out, err
}

// rowsPerSecond is what one connection stores of rows as long as an event.
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
