package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// script is attach without a terminal: prompts come from standard input, answers go to standard
// output.
type script struct {
	ctx     context.Context //nolint:containedctx // it lasts as long as run
	log     *slog.Logger
	client  *apiclient.Client
	id      string
	out     io.Writer
	json    bool
	waiting map[string]*scripted // by prompt id
	failed  []error              // how prompts ended that were not completed
}

// scripted is a prompt that is not over.
type scripted struct {
	answer
	text strings.Builder
}

// maxWaiting bounds the prompts that are sent ahead of their answers, well below what a queue holds.
const maxWaiting = 100

func (c *SessionAttachCmd) script(ctx context.Context, logger *slog.Logger, client *apiclient.Client, s streams, parent *SessionCmd) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after, err := client.Position(ctx, c.ID)
	if err != nil {
		return err
	}
	r := &script{
		ctx: ctx, log: logger, client: client, id: c.ID, out: s.stdout, json: parent.json(), waiting: map[string]*scripted{},
	}
	return r.run(readLines(ctx, s.stdin), after)
}

// run sends the lines and prints what comes of them until all are over.
func (r *script) run(lines <-chan string, after int64) error {
	ctx, cancel := context.WithCancel(r.ctx)
	events := followAll(ctx, r.client, r.id, after)
	defer func() {
		cancel()
		for range events { // the goroutine ends before run does
		}
	}()
	var text composer
	for lines != nil || len(r.waiting) > 0 {
		in := lines
		if len(r.waiting) >= maxWaiting {
			in = nil
		}
		select {
		case line, ok := <-in:
			var prompt string
			whole := true
			if ok {
				prompt, whole = text.add(line)
			} else {
				lines, prompt = nil, text.rest()
			}
			if !whole {
				continue
			}
			if strings.TrimSpace(prompt) == "" {
				continue
			}
			if err := r.submit(prompt); err != nil {
				return err
			}
		case got, ok := <-events:
			switch {
			case !ok:
				return r.ctx.Err()
			case got.err != nil:
				return fmt.Errorf("follow %s: %w", r.id, got.err)
			case got.event.Type == apiclient.MarkerEnd:
				return r.end()
			}
			if err := r.event(got.event); err != nil {
				return err
			}
		}
	}
	return errors.Join(r.failed...)
}

func (r *script) submit(prompt string) error {
	id := session.NewID(session.PromptPrefix)
	p := &scripted{}
	out := io.Writer(&p.text)
	if !r.json {
		out = r.out
	}
	p.answer = answer{promptID: id, out: out, clean: !r.json}
	r.waiting[id] = p
	_, err := r.client.PromptSubmit(r.ctx, r.id, apiclient.Submit{Content: prompt, ID: id})
	return err
}

// event gives an event to the prompts that wait; each takes what is about it.
func (r *script) event(e apiclient.Event) error {
	for id, p := range r.waiting {
		over, err := p.take(e)
		if err != nil {
			return err
		}
		if err := warnOfQuestion(r.ctx, r.log, e, p.runID); err != nil {
			return err
		}
		if over == nil || over.Status == session.PromptUnknown && over.OnUnknown == session.Retry {
			continue
		}
		delete(r.waiting, id)
		if err := r.over(p, *over); err != nil {
			return err
		}
	}
	return nil
}

func (r *script) over(p *scripted, final wire.PromptJSON) error {
	if err := p.finish(); err != nil {
		return err
	}
	if err := outcome(final); err != nil {
		r.failed = append(r.failed, err)
	}
	if !r.json {
		return nil
	}
	line, err := json.Marshal(promptAnswer{Prompt: final, Answer: p.text.String()})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = fmt.Fprintf(r.out, "%s\n", line)
	return err
}

// end asks what became of the prompts that the stream, which is over, did not tell of.
func (r *script) end() error {
	for id, p := range r.waiting {
		final, err := r.client.PromptGet(r.ctx, r.id, id)
		if err != nil {
			return err
		}
		if err := r.over(p, final); err != nil {
			return err
		}
	}
	return errors.Join(append(r.failed, errors.New("the session is over"))...)
}
