package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clockStep is the resolution of the times of events, which are rounded down. A time of the agent
// counts as the end of its millisecond, so that no figure is better than reality.
const clockStep = time.Millisecond

// waitLimit is the time after which an operation counts as failed.
const waitLimit = 2 * time.Minute

// prompts are the durations of prompts to a running session.
type prompts struct {
	accepted  samples // POST until 202
	firstWord samples // POST until the agent's first word, by the agent's clock
	first     samples // POST until the first word arrives at the reader
	ended     samples // POST until turn_end arrives at the reader
}

// sleeps are the durations of hibernations and wakes.
type sleeps struct {
	hibernated samples // POST until the status arrives
	accepted   samples // POST of the prompt that wakes, until 202
	firstWord  samples // POST of that prompt until the agent's first word
}

// probe is the measured session with its reader.
type probe struct {
	client  *client
	session string
	prompts int
	events  chan event
	cancel  context.CancelFunc
	done    chan error
}

// newProbe creates a demo session that has already run a number of prompts.
func newProbe(ctx context.Context, c *client, warmUp int) (*probe, error) {
	p, err := newProbeOf(ctx, c, "demo")
	if err != nil {
		return nil, err
	}
	for range warmUp {
		if err := p.turn(ctx, &prompts{}); err != nil {
			p.close(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	return p, nil
}

// newProbeOf creates a session of an agent, without a prompt.
func newProbeOf(ctx context.Context, c *client, agent string) (*probe, error) {
	id, err := c.create(ctx, agent)
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
	return p, nil
}

// leave closes the reader; the session remains.
func (p *probe) leave() {
	p.cancel()
	<-p.done //nolint:errcheck // a stream error was already reported as a missing event
}

// close ends the session and waits until its sandbox is terminated. It reports no error, because
// the measurement is complete.
func (p *probe) close(ctx context.Context) {
	p.leave()
	p.client.stopAll(ctx, []string{p.session}) //nolint:errcheck // see above
}

// await returns the first event that match accepts.
func (p *probe) await(ctx context.Context, what string, match func(event) bool) (event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("no %s within %s", what, waitLimit))
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
func (p *probe) turn(ctx context.Context, into *prompts) error { return p.send(ctx, "hello", into) }

// say measures one prompt that the agent answers with text.
func (p *probe) send(ctx context.Context, content string, into *prompts) error {
	p.prompts++
	id := fmt.Sprintf("p%d", p.prompts)
	began := time.Now()
	if err := p.client.prompt(ctx, p.session, id, content); err != nil {
		return err
	}
	into.accepted.add(time.Since(began))
	start, err := p.await(ctx, "turn_start", func(e event) bool { return e.Type == "turn_start" && e.Data.PromptID == id })
	if err != nil {
		return err
	}
	started := false
	end, err := p.await(ctx, "turn_end", func(e event) bool {
		switch {
		case e.RunID != start.RunID:
		case e.Type == "block_start" && e.Data.Block.Type == "assistant_text" && !started:
			started = true
			into.firstWord.add(e.At.Add(clockStep).Sub(began))
		case e.Type == "text_delta" && into.first.n() < into.accepted.n():
			into.first.add(e.arrived.Sub(began))
		}
		return e.Type == "turn_end" && e.Data.PromptID == id
	})
	if err != nil {
		return err
	}
	if end.Data.Outcome != "completed" {
		return fmt.Errorf("prompt %s ended %s", id, end.Data.Outcome)
	}
	into.ended.add(end.arrived.Sub(began))
	if !started {
		return fmt.Errorf("the agent did not answer prompt %s with text", id)
	}
	return nil
}

// promptRounds alternates between a prompt and the floors, for a number of rounds or until the
// limit has passed, but at least once.
func (p *probe) promptRounds(ctx context.Context, b *bare, rounds int, limit time.Duration, l *life) error {
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

// sleepRounds alternates between a hibernation with its wake and the life of a bare sandbox, as
// promptRounds does.
func (p *probe) sleepRounds(ctx context.Context, b *bare, rounds int, limit time.Duration, l *life) error {
	first := time.Now()
	for i := range rounds + 1 {
		if i > 1 && time.Since(first) > limit {
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
		sleep, floor := &l.sleeps, &l.floors
		if i == 0 { // the first one stores the whole image
			sleep, floor = &sleeps{}, &floors{}
		}
		sleep.hibernated.add(slept.arrived.Sub(began))
		if err := b.life(ctx, p.session, floor); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		var wake prompts
		if err := p.turn(ctx, &wake); err != nil {
			return err
		}
		sleep.accepted.add(wake.accepted.p50())
		sleep.firstWord.add(wake.firstWord.p50())
	}
	return nil
}
