package turn

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// heldMessage is a message with the read-ahead memory that it occupies.
type heldMessage struct {
	message runner.Message
	weight  int64 // bytes of the turn's own limit
	common  int64 // bytes of the limit that all turns share; 0 if the message fits in the turn's share
}

const (
	// linkBacklog bounds the messages that wait for the commit in progress. Further ones wait in
	// the runner's journal.
	linkBacklog = 1024
	// idleBacklog is the number of messages for which an empty inbox keeps its memory.
	idleBacklog = 32
)

// inbox is a queue of a link's messages that the turn has not taken yet. It is empty most of the time,
// so it allocates memory as messages arrive; a channel would always hold memory for linkBacklog of them.
type inbox struct {
	ready chan struct{} // has a token while messages are queued, and after close
	room  chan struct{} // has a token if messages were taken since put last waited

	mu      sync.Mutex
	waiting []heldMessage
	closed  bool
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)} }

// put adds a message. It blocks while linkBacklog messages are queued, and returns false if ctx ends
// first.
func (b *inbox) put(ctx context.Context, h heldMessage) bool {
	for !b.add(h) {
		select {
		case <-b.room:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (b *inbox) add(h heldMessage) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= linkBacklog {
		return false
	}
	b.waiting = append(b.waiting, h)
	signal(b.ready)
	return true
}

// close marks the end of the messages.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	signal(b.ready)
}

// take returns all queued messages, and whether the inbox is closed. The caller must have received
// from ready. The inbox reuses reused, the slice that an earlier call returned.
func (b *inbox) take(reused []heldMessage) (messages []heldMessage, closed bool) {
	if cap(reused) > idleBacklog {
		reused = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.waiting = b.waiting, reused[:0]
	signal(b.room)
	if b.closed {
		signal(b.ready)
	} else {
		withdraw(b.ready) // left by a later message that is already in messages
	}
	return messages, b.closed
}

// signal leaves a token in a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the channel already has a token
	}
}

// withdraw takes the token out of a channel, if it has one.
func withdraw(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
