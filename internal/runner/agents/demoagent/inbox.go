package demoagent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// delivery is a prompt with the means to break it off, before or while it is worked on.
type delivery struct {
	prompt demoformat.Line
	ctx    context.Context //nolint:containedctx // done when the prompt is interrupted
	cancel context.CancelFunc
	steers []demoformat.Line // prompts for its turn that have not been taken
	over   bool              // its turn takes no more of them
}

// inbox reads stdin while the agent works, so that interrupts and answers take effect at once.
type inbox struct {
	changed chan struct{} // one token: something changed that next may wait for

	mu      sync.Mutex
	waiting []*delivery
	running *delivery
	asked   map[string]chan demoformat.Line // questions that wait, by uuid
	steered map[string]bool                 // prompts for running turns that have come, by uuid
	closed  bool
}

func newInbox() *inbox {
	return &inbox{changed: make(chan struct{}, 1), asked: map[string]chan demoformat.Line{}, steered: map[string]bool{}}
}

// read reads lines until stdin ends. Lines that are nothing for the agent are reported on stderr.
func (b *inbox) read(stdin io.Reader, stderr io.Writer) {
	defer b.close()
	r := bufio.NewReader(stdin)
	for {
		data, err := r.ReadBytes('\n')
		if len(data) > 0 {
			b.take(data, stderr)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintf(stderr, "demo agent: read stdin: %v\n", err)
			}
			return
		}
	}
}

func (b *inbox) take(data []byte, stderr io.Writer) {
	var l demoformat.Line
	err := json.Unmarshal(data, &l)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "demo agent: stdin: %v\n", err)
	case l.Type == demoformat.LineUser && l.UUID != "":
		ctx, cancel := context.WithCancel(context.Background())
		b.mu.Lock()
		b.waiting = append(b.waiting, &delivery{prompt: l, ctx: ctx, cancel: cancel})
		b.mu.Unlock()
		b.notify()
	case l.Type == demoformat.LineSteer && l.UUID != "" && l.RunID != "":
		b.steer(l)
	case l.Type == demoformat.LineInterrupt:
		b.interrupt(l.RunID)
	case l.Type == demoformat.LineAnswer && slices.Contains(question.Decisions(), l.Decision):
		b.reply(l)
	default:
		fmt.Fprintf(stderr, "demo agent: stdin: a line of type %q is not a prompt with a uuid, an interrupt or an answer with a decision\n", l.Type)
	}
}

// steer takes a prompt for a running turn. One whose turn is over comes to be declined, in the place of a prompt.
func (b *inbox) steer(l demoformat.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.steered[l.UUID] {
		return // a second worker has sent it
	}
	b.steered[l.UUID] = true
	if d := b.running; d != nil && !d.over && d.prompt.Type == demoformat.LineUser && d.prompt.RunID == l.RunID {
		d.steers = append(d.steers, l)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.waiting = append(b.waiting, &delivery{prompt: l, ctx: ctx, cancel: cancel})
	b.notify()
}

// steers are the prompts that have come for a running turn since the last call. With over they are the last ones: those
// that come later are declined. A turn that is not over yet, as some have come, is left open.
func (b *inbox) steers(d *delivery, over bool) []demoformat.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := d.steers
	d.steers = nil
	d.over = d.over || over && len(lines) == 0
	return lines
}

// expect says that a question is about to be asked; its answer comes by the channel, which holds
// one. Where stdin has ended the answer is no.
func (b *inbox) expect(id string) <-chan demoformat.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	reply := make(chan demoformat.Line, 1)
	b.asked[id] = reply
	if b.closed {
		b.answer(demoformat.Line{UUID: id, Decision: question.Reject, Content: unanswered})
	}
	return reply
}

// forget says that a question does not wait any more.
func (b *inbox) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asked, id)
}

func (b *inbox) reply(l demoformat.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer(l)
}

// answer hands on the first answer to a question; others mean nothing. It needs the lock.
func (b *inbox) answer(l demoformat.Line) {
	if reply, ok := b.asked[l.UUID]; ok {
		delete(b.asked, l.UUID)
		reply <- l
	}
}

// interrupt cancels the run of that id, be it running or waiting, or with no id the running one.
func (b *inbox) interrupt(runID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != nil && (runID == "" || b.running.prompt.RunID == runID) {
		b.running.cancel()
	}
	for _, d := range b.waiting {
		if runID != "" && d.prompt.RunID == runID {
			d.cancel()
		}
	}
}

// next waits for a prompt and makes it the running one; nil means that there will be no more.
func (b *inbox) next() *delivery {
	for {
		b.mu.Lock()
		if b.running != nil {
			b.running.cancel()
			b.running = nil
		}
		if len(b.waiting) > 0 {
			b.running, b.waiting = b.waiting[0], b.waiting[1:]
			d := b.running
			b.mu.Unlock()
			return d
		}
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return nil
		}
		<-b.changed
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	for id := range b.asked {
		b.answer(demoformat.Line{UUID: id, Decision: question.Reject, Content: unanswered})
	}
	b.mu.Unlock()
	b.notify()
}

func (b *inbox) notify() {
	select {
	case b.changed <- struct{}{}:
	default: // signaled already
	}
}
