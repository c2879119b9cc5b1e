package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestShortKeysAreRefused(t *testing.T) {
	t.Parallel()
	full := Config{Store: struct{ Store }{}, Signaler: struct{ Signaler }{}, Events: struct{ feed.Log }{}, Agents: struct{ Agents }{}}
	full.Key = secret.NewValue("nineteen-characters")
	_, err := New(full)
	require.ErrorContains(t, err, "at least 20")
	full.Key = secret.NewValue("twenty-characters-it")
	_, err = New(full)
	require.NoError(t, err)
	full.WithoutKey = true
	_, err = New(full)
	require.ErrorContains(t, err, "WithoutKey")
	full.Key = secret.Value{}
	_, err = New(full)
	require.NoError(t, err)
	full.WithoutKey = false
	_, err = New(full)
	require.ErrorContains(t, err, "Key", "a server is open only where that is said")
}

// A caller that guesses waits longer each time. Other callers, and requests with the correct key,
// do not wait.
func TestWrongKeysAreThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newKeyGuard("right", sleep)
		start := time.Now()
		took := func(caller, key string, want keyVerdict) time.Duration {
			began := time.Now()
			require.Equal(t, want, g.check(t.Context(), caller, key))
			return time.Since(began)
		}
		var delays []time.Duration
		for range 8 {
			delays = append(delays, took("a", "guess", keyWrong))
		}
		require.Equal(t, []time.Duration{
			100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second,
		}, delays)
		require.Zero(t, took("a", "right", keyRight))
		require.Equal(t, 100*time.Millisecond, took("b", "guess", keyWrong))
		sleep(t.Context(), keyMemory+time.Second)
		require.Equal(t, 100*time.Millisecond, took("a", "guess", keyWrong), "forgotten after a minute without a wrong key")
		require.Less(t, time.Since(start), 2*time.Minute)
	})
}

func TestKeyAttemptsPerSecondAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newKeyGuard("right", sleep)
		ctx, cancel := context.WithCancelCause(t.Context())
		verdicts := make(chan keyVerdict, maxDelayed)
		for range maxDelayed {
			go func() { verdicts <- g.check(ctx, "a", "guess") }()
		}
		synctest.Wait()
		require.Equal(t, keyBusy, g.check(ctx, "a", "right"), "no key is compared while the bound is reached")
		require.Equal(t, keyRight, g.check(ctx, "b", "right"))
		cancel(errors.New("the clients have left"))
		for range maxDelayed {
			require.Equal(t, keyWrong, <-verdicts)
		}
		require.Equal(t, keyBusy, g.check(t.Context(), "a", "guess"), "a client that does not wait for the answer guesses no faster")
		sleep(t.Context(), maxKeyDelay)
		require.Equal(t, keyRight, g.check(t.Context(), "a", "right"))
	})
}

// The owner of an IPv6 address usually has many addresses.
func TestAddressesOfOneNetworkAreOneCaller(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:2::1%eth0"} {
		require.Equal(t, "2001:db8:1:2::/64", callerOf(address))
	}
	require.NotEqual(t, callerOf("2001:db8:1:2::1"), callerOf("2001:db8:1:3::1"))
	require.Equal(t, callerOf("192.0.2.1"), callerOf("::ffff:192.0.2.1"))
	require.NotEqual(t, callerOf("192.0.2.1"), callerOf("192.0.2.2"))
}

func TestCallerMemoryIsBounded(t *testing.T) {
	t.Parallel()
	g := newKeyGuard("right", func(context.Context, time.Duration) {})
	for i := range 3 * maxCallers {
		g.check(t.Context(), session.NewID("caller-")+string(rune('a'+i%26)), "guess")
	}
	require.LessOrEqual(t, len(g.callers), maxCallers+1)
}
