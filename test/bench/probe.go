package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clockStep is what the times of events are rounded down to. A moment of the agent is
// taken at the end of its millisecond, so that no figure is better than the truth.
const clockStep = time.Millisecond

// patience is how long anything may take before it counts as broken.
const patience = 2 * time.Minute

// prompts are what prompts to a running session took.
type prompts struct {
	accepted samples // POST until 202
	heard    samples // POST until the agent's first own line
	ended    samples // POST until turn_end is here, for a word
}

// sleeps are what a session's sleeping and waking took.
type sleeps struct {
	hibernated samples // POST until the status is here
	accepted   samples // POST of a prompt until 202
	heard      samples // POST of that prompt until the agent's first own line
}

// probe is the session that is measured, with its reader.
type probe struct {
	client  *client
	session string
	prompts int
	events  chan event
	cancel  context.CancelFunc
	done    chan error
}

// newProbe makes a session that has had its first prompts.
func newProbe(ctx context.Context, c *client, warmUp int) (*probe, error) {
	id, err := c.create(ctx)
	if err != nil {
		return nil, err
	}
	streaming, cancel := context.WithCancel(ctx)
	p := &probe{
		client: c, session: id, cancel: cancel,
		events: make(chan event, 1024), // more than one round has
		done:   make(chan error, 1),
	}
	go func() {
		p.done <- c.stream(streaming, id, func(e event) {
			select {
			case p.events <- e:
			case <-streaming.Done():
			}
		})
	}()
	for range warmUp {
		if err := p.turn(ctx, &prompts{}); err != nil {
			p.close(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	return p, nil
}

func (p *probe) close(ctx context.Context) {
	p.cancel()
	<-p.done //nolint:errcheck // what broke the stream was told where it was missed
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	p.client.command(ctx, p.session, "stop") //nolint:errcheck // the system is stopped next
}

// await returns the first event that match accepts.
func (p *probe) await(ctx context.Context, what string, match func(event) bool) (event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no %s within %s", what, patience))
	defer cancel()
	for {
		select {
		case e := <-p.events:
			if match(e) {
				return e, nil
			}
		case err := <-p.done:
			p.done <- err
			return event{}, errors.Join(fmt.Errorf("the stream ended before %s", what), err)
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}

// turn measures one prompt of one word.
func (p *probe) turn(ctx context.Context, into *prompts) error {
	p.prompts++
	id := fmt.Sprintf("p%d", p.prompts)
	began := time.Now()
	if err := p.client.prompt(ctx, p.session, id, "hello"); err != nil {
		return err
	}
	into.accepted.add(time.Since(began))
	start, err := p.await(ctx, "turn_start", func(e event) bool { return e.Type == "turn_start" && e.Data.PromptID == id })
	if err != nil {
		return err
	}
	spoken, err := p.await(ctx, "word of the agent", func(e event) bool {
		return e.Type == "block_start" && e.RunID == start.RunID && e.Data.Block.Type == "assistant_text"
	})
	if err != nil {
		return err
	}
	into.heard.add(spoken.At.Add(clockStep).Sub(began))
	end, err := p.await(ctx, "turn_end", func(e event) bool { return e.Type == "turn_end" && e.Data.PromptID == id })
	if err != nil {
		return err
	}
	if end.Data.Outcome != "completed" {
		return fmt.Errorf("prompt %s ended %s", id, end.Data.Outcome)
	}
	into.ended.add(end.arrived.Sub(began))
	return nil
}

// promptRounds takes turns between a prompt and the floors, for so many rounds or until the limit
// has passed, but once at least.
func (p *probe) promptRounds(ctx context.Context, b *bare, rounds int, limit time.Duration, l *load) error {
	if err := b.round(ctx, &floors{}); err != nil { // warms up
		return err
	}
	began := time.Now()
	for i := range rounds {
		if i > 0 && time.Since(began) > limit {
			return nil
		}
		if err := b.round(ctx, &l.floors); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		if err := p.turn(ctx, &l.prompts); err != nil {
			return err
		}
	}
	return nil
}

// sleepRounds takes turns between a night of the session and the life of a bare sandbox, as
// promptRounds does.
func (p *probe) sleepRounds(ctx context.Context, b *bare, rounds int, limit time.Duration, l *load) error {
	evening := time.Now()
	for i := range rounds + 1 {
		if i > 1 && time.Since(evening) > limit {
			return nil
		}
		began := time.Now()
		if err := p.client.command(ctx, p.session, "hibernate"); err != nil {
			return err
		}
		slept, err := p.await(ctx, "hibernated", func(e event) bool { return e.Type == "status" && e.Data.Status == "hibernated" })
		if err != nil {
			return err
		}
		night, floor := &l.sleeps, &l.floors
		if i == 0 { // the first has the whole image to store
			night, floor = &sleeps{}, &floors{}
		}
		night.hibernated.add(slept.arrived.Sub(began))
		if err := b.life(ctx, p.session, floor); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		var morning prompts
		if err := p.turn(ctx, &morning); err != nil {
			return err
		}
		night.accepted.add(morning.accepted.p50())
		night.heard.add(morning.heard.p50())
	}
	return nil
}
