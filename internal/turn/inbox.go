package turn

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// heldMessage is a message with the room that it takes.
type heldMessage struct {
	message runner.Message
	weight  int64 // of the room of the turn
	common  int64 // of the room of all turns; 0 if the message is in the turn's share
}

const (
	// linkBacklog bounds the messages that wait for the commit in progress. Further ones wait in
	// the runner's journal.
	linkBacklog = 1024
	// idleBacklog is for how many messages an inbox keeps memory while none waits.
	idleBacklog = 32
)

// inbox holds the messages of a link that wait for the turn. Most of the time none does, so it takes
// memory for those that wait, where a channel would always have it for linkBacklog of them.
type inbox struct {
	ready chan struct{} // has a token while messages wait, and once no more will come
	room  chan struct{} // has a token if messages were taken since the last wait for room

	mu      sync.Mutex
	waiting []heldMessage
	closed  bool
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)} }

// put adds a message. While linkBacklog messages wait, it waits too, and returns false if ctx ends meanwhile.
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

// close says that no more messages will come.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	signal(b.ready)
}

// take returns all messages that wait, and whether no more will come. It is for the one that has received from ready. The inbox
// reuses spent, the slice that an earlier call returned.
func (b *inbox) take(spent []heldMessage) (messages []heldMessage, closed bool) {
	if cap(spent) > idleBacklog {
		spent = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.waiting = b.waiting, spent[:0]
	signal(b.room)
	if b.closed {
		signal(b.ready)
	} else {
		withdraw(b.ready) // of a message that came since and is among these
	}
	return messages, b.closed
}

// signal leaves a token in a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is one
	}
}

// withdraw takes the token out of a channel, if there is one.
func withdraw(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
