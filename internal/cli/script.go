package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// ScriptOptions are the choices of Script.
type ScriptOptions struct {
	SessionID string
	// JSON prints each answer as a line of JSON with its prompt, a PromptAnswer, when the prompt has ended.
	// Otherwise answers are printed as text while the agent writes them.
	JSON bool
	// Notes get a line for each question that a prompt waits for.
	Notes io.Writer
}

// script sends prompts and prints their answers.
type script struct {
	o       ScriptOptions
	client  *client.Client
	out     io.Writer
	waiting map[string]*scripted // by prompt ID
	failed  []error              // outcomes of prompts that were not completed
	trouble trouble
	held    heldNote
}

// scripted is a prompt that has not ended.
type scripted struct {
	answer
	text strings.Builder
}

// maxWaiting bounds the prompts that are sent ahead of their answers, well below the limit of a
// queue.
const maxWaiting = 100

// Script sends each line of the input as a prompt and prints the answers. It returns when all prompts have
// ended, with an error for each that was not completed.
func Script(ctx context.Context, api *client.Client, in io.Reader, out io.Writer, o ScriptOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after, err := api.Position(ctx, o.SessionID)
	if err != nil {
		return err
	}
	s := &script{o: o, client: api, out: out, waiting: map[string]*scripted{}, trouble: trouble{sessionID: o.SessionID}, held: heldNote{notes: o.Notes, sessionID: o.SessionID}}
	return s.run(ctx, readLines(ctx, in), after)
}

func (s *script) run(ctx context.Context, lines <-chan string, after int64) error {
	inner, cancel := context.WithCancel(ctx)
	events := stream(inner, s.client, s.o.SessionID, after)
	defer func() {
		cancel()
		for range events { // the goroutine ends before run does
		}
	}()
	var text composer
	for lines != nil || len(s.waiting) > 0 {
		in := lines
		if len(s.waiting) >= maxWaiting {
			in = nil
		}
		select {
		case line, ok := <-in:
			var prompt string
			complete := true
			if ok {
				prompt, complete = text.add(line)
			} else {
				lines, prompt = nil, text.end()
			}
			if !complete || strings.TrimSpace(prompt) == "" {
				continue
			}
			if err := s.submit(ctx, prompt); err != nil {
				return err
			}
		case got, ok := <-events:
			switch {
			case !ok:
				return ctx.Err()
			case got.err != nil:
				return fmt.Errorf("follow %s: %w", s.o.SessionID, got.err)
			case got.event.Type == client.MarkerEnd:
				return s.end(ctx)
			}
			if err := s.event(got.event); err != nil {
				return err
			}
			if err := s.trouble.take(got.event); err != nil && len(s.waiting) > 0 {
				return errors.Join(append(s.failed, err)...)
			}
		}
	}
	return errors.Join(s.failed...)
}

func (s *script) submit(ctx context.Context, prompt string) error {
	id := session.NewID(session.PromptPrefix)
	p := &scripted{}
	out := io.Writer(&p.text)
	if !s.o.JSON {
		out = s.out
	}
	p.answer = answer{promptID: id, out: out, printable: !s.o.JSON}
	s.waiting[id] = p
	_, err := s.client.PromptSubmit(ctx, s.o.SessionID, client.Submit{Content: prompt, ID: id})
	return err
}

// event passes an event to each unfinished prompt.
func (s *script) event(e client.Event) error {
	queued := 0
	for _, p := range s.waiting {
		if p.runID == "" {
			queued++
		}
	}
	if err := s.held.take(e, queued > 0); err != nil {
		return err
	}
	for id, p := range s.waiting {
		ended, err := p.take(e)
		if err != nil {
			return err
		}
		if err := noteQuestion(s.o.Notes, e, p.runID); err != nil {
			return err
		}
		if ended == nil || runsAgain(ended) {
			continue
		}
		delete(s.waiting, id)
		if err := s.ended(p, *ended); err != nil {
			return err
		}
	}
	return nil
}

// ended prints the rest of an answer and records its prompt's outcome.
func (s *script) ended(p *scripted, final client.Prompt) error {
	if err := p.finish(); err != nil {
		return err
	}
	if err := outcome(final); err != nil {
		s.failed = append(s.failed, err)
	}
	if !s.o.JSON {
		return nil
	}
	line, err := json.Marshal(PromptAnswer{Prompt: final, Answer: p.text.String()})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = fmt.Fprintf(s.out, "%s\n", line)
	return err
}

// end reads the prompts that had not ended when the stream did, because the session was terminated.
func (s *script) end(ctx context.Context) error {
	for id, p := range s.waiting {
		final, err := s.client.PromptGet(ctx, s.o.SessionID, id)
		if err != nil {
			return err
		}
		if err := s.ended(p, final); err != nil {
			return err
		}
	}
	return errors.Join(append(s.failed, errors.New("the session has been terminated"))...)
}
