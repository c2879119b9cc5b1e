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

// delivery is a prompt that can be aborted, before or during its execution.
type delivery struct {
	prompt demoformat.Line
	ctx    context.Context //nolint:containedctx // done when the prompt is interrupted
	cancel context.CancelFunc
	steers []demoformat.Line // prompts for its turn that have not been accepted
	closed bool              // its turn accepts no more of them
}

// inbox reads stdin while the agent is working, so that interrupts and answers take effect at once.
type inbox struct {
	changed chan struct{} // receives a token on every change that next may wait for

	mu      sync.Mutex
	waiting []*delivery
	running *delivery
	asked   map[string]chan demoformat.Line // open questions, by uuid
	steered map[string]bool                 // received prompts for running turns, by uuid
	closed  bool
}

func newInbox() *inbox {
	return &inbox{changed: make(chan struct{}, 1), asked: map[string]chan demoformat.Line{}, steered: map[string]bool{}}
}

// read reads lines until stdin is closed. It reports unknown lines on stderr.
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

// steer queues a prompt for a running turn. If its turn has ended, it is queued like a prompt, to
// be declined.
func (b *inbox) steer(l demoformat.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.steered[l.UUID] {
		return // a second worker has sent it
	}
	b.steered[l.UUID] = true
	if d := b.running; d != nil && !d.closed && d.prompt.Type == demoformat.LineUser && d.prompt.RunID == l.RunID {
		d.steers = append(d.steers, l)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.waiting = append(b.waiting, &delivery{prompt: l, ctx: ctx, cancel: cancel})
	b.notify()
}

// steers returns the prompts for a running turn received since the last call. If over is set and no
// prompt is returned, the turn is closed: later prompts are declined.
func (b *inbox) steers(d *delivery, closing bool) []demoformat.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := d.steers
	d.steers = nil
	d.closed = d.closed || closing && len(lines) == 0
	return lines
}

// expect registers a question that is about to be asked and returns the channel for its answer,
// which has room for one. If stdin is closed, the question is rejected.
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

// forget removes a question that no longer waits.
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

// answer forwards the first answer to a question and ignores others. The caller holds the lock.
func (b *inbox) answer(l demoformat.Line) {
	if reply, ok := b.asked[l.UUID]; ok {
		delete(b.asked, l.UUID)
		reply <- l
	}
}

// interrupt cancels the run with that id, whether running or waiting, or the running one if the id
// is empty.
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

// next waits for a prompt and makes it the running one. It returns nil if no more will arrive.
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
	default: // already signaled
	}
}
