package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"time"
)

// MinKeyLength is the shortest API key that a server accepts, in bytes.
const MinKeyLength = 20

// Bounds of the back-off on wrong keys.
const (
	firstKeyDelay = 100 * time.Millisecond // after the first wrong key of a caller
	maxKeyDelay   = 5 * time.Second        // doubled up to this
	keyMemory     = time.Minute            // a caller's failures are forgotten after this long without one
	maxDelayed    = 32                     // answers to one caller that are delayed at the same time
	maxCallers    = 4096                   // callers remembered; beyond it they share one entry
)

// keyVerdict is the result of checking a key.
type keyVerdict int

const (
	keyRight keyVerdict = iota
	keyWrong
	keyBusy // too many wrong keys from this caller are being delayed; the key was not compared
)

// keyGuard checks API keys in constant time and slows down callers that guess. A caller is a
// remote address. Each wrong key delays its own answer, twice as long as the one before, and the
// number of delayed answers per caller is bounded, so guesses per second are bounded too. A right
// key is answered at once, whatever others at the same address have sent, unless the bound is
// reached at that moment.
type keyGuard struct {
	want [sha256.Size]byte
	now  func() time.Time
	wait func(context.Context, time.Duration) // returns early when the request ends

	mu      sync.Mutex
	callers map[string]*guesser
}

type guesser struct {
	failures int
	delayed  int
	last     time.Time
}

func newKeyGuard(key string, wait func(context.Context, time.Duration)) *keyGuard {
	return &keyGuard{want: sha256.Sum256([]byte(key)), now: time.Now, wait: wait, callers: map[string]*guesser{}}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// check compares key with the server's. It returns after the delay that the caller has earned.
func (g *keyGuard) check(ctx context.Context, caller, key string) keyVerdict {
	if g.busy(caller) {
		return keyBusy
	}
	got := sha256.Sum256([]byte(key)) // of one length, so that the comparison takes one time
	if subtle.ConstantTimeCompare(got[:], g.want[:]) == 1 {
		return keyRight
	}
	delay, done := g.fail(caller)
	defer done()
	g.wait(ctx, delay)
	return keyWrong
}

func (g *keyGuard) busy(caller string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.callers[g.entry(caller)]
	return known != nil && known.delayed >= maxDelayed
}

// fail records a wrong key and returns how long its answer is delayed; done ends the delay.
func (g *keyGuard) fail(caller string) (delay time.Duration, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.forget(now)
	name := g.entry(caller)
	known := g.callers[name]
	if known == nil {
		known = &guesser{}
		g.callers[name] = known
	}
	delay = maxKeyDelay
	if known.failures < 6 { // 100 ms × 2⁶ is over the maximum
		delay = min(firstKeyDelay<<known.failures, maxKeyDelay)
	}
	known.failures++
	known.delayed++
	known.last = now
	return delay, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		known.delayed--
	}
}

// entry is the name under which a caller is remembered.
func (g *keyGuard) entry(caller string) string {
	if _, known := g.callers[caller]; !known && len(g.callers) >= maxCallers {
		return ""
	}
	return caller
}

func (g *keyGuard) forget(now time.Time) {
	for name, known := range g.callers {
		if known.delayed == 0 && now.Sub(known.last) > keyMemory {
			delete(g.callers, name)
		}
	}
}
