package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/netip"
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
	maxDelayed    = 32                     // concurrently delayed answers to one caller
	maxCallers    = 4096                   // number of remembered callers; further callers share one entry
)

// keyVerdict is the result of checking a key.
type keyVerdict int

const (
	keyRight keyVerdict = iota
	keyWrong
	keyBusy // too many wrong keys from this caller are being delayed; the key was not compared
)

// keyGuard checks API keys in constant time and slows down callers that guess. A caller is a remote
// address or, for IPv6, the /64 network that one customer usually has. Each wrong key delays its
// answer twice as long as the previous wrong key, and the number of delayed answers per caller is
// bounded, so the guesses per second are bounded too. A delay counts until its end even if the
// client has disconnected, because a client that does not wait has learned from the missing answer
// that its key is wrong. A correct key is answered at once, regardless of other requests from the
// same address, unless the bound is reached at that moment.
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

// check compares key with the server's. It returns after the caller's delay.
func (g *keyGuard) check(ctx context.Context, caller, key string) keyVerdict {
	got := sha256.Sum256([]byte(key)) // equal lengths, so that the comparison takes constant time
	verdict, delay := g.compare(callerOf(caller), got)
	if verdict == keyWrong {
		g.wait(ctx, delay)
	}
	return verdict
}

// callerOf returns the name under which an address is counted.
func callerOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is6() {
		if prefix, err := ip.WithZone("").Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}

// compare reports whether the key is correct, and records a wrong key with the delay of its answer.
// This is atomic, so that concurrent guesses are not all compared before the first one counts.
func (g *keyGuard) compare(caller string, got [sha256.Size]byte) (keyVerdict, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.callers[g.entry(caller)]; known != nil && known.delayed >= maxDelayed {
		return keyBusy, 0
	}
	if subtle.ConstantTimeCompare(got[:], g.want[:]) == 1 {
		return keyRight, 0
	}
	return keyWrong, g.fail(caller)
}

// fail records a wrong key and returns how long its answer is delayed. The caller holds g.mu.
func (g *keyGuard) fail(caller string) time.Duration {
	now := g.now()
	g.forget(now)
	name := g.entry(caller)
	known := g.callers[name]
	if known == nil {
		known = &guesser{}
		g.callers[name] = known
	}
	delay := maxKeyDelay
	if known.failures < 6 { // 100 ms × 2⁶ exceeds the maximum
		delay = min(firstKeyDelay<<known.failures, maxKeyDelay)
	}
	known.failures++
	known.delayed++
	known.last = now
	time.AfterFunc(delay, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		known.delayed--
	})
	return delay
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
