package test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The short form of the overload is part of every run of the tests; make overload runs a longer one.
var (
	overloadTime     = flag.Duration("overload", 4*time.Second, "how long TestOverloadHeals overloads the system")
	overloadSessions = flag.Int("overload-sessions", 8, "how many sessions it has speak without a pause")
)

const (
	// overloadWords is the number of words of a flooding session per turn, each a line of its
	// agent.
	overloadWords = 12_000
	// overloadGap bounds the longest time without a word in the turn of a flooding session, as a
	// multiple of the median of the others' longest times. Turns with little output have their
	// words within overloadLag.
	overloadGap = 10
	overloadLag = 15 * time.Second
)

// TestOverloadHeals makes agents print as fast as they can, which is many times the machine's
// capacity, alongside one that prints ten words a second. The load causes no retry of a turn, no
// session waits for much longer than the others, and soon after the load has ended the words of the
// slow agent arrive as quickly as before.
func TestOverloadHeals(t *testing.T) {
	t.Parallel()
	s := launch(t, []string{defaultCollector}, stackDir(t))
	slow := newSpeaker(t, s)
	s.prompt(t, slow.id, "slow", "slow 100ms: "+strings.TrimSpace(strings.Repeat("word ", 50_000)))
	flooding := make([]*speaker, *overloadSessions)
	for i := range flooding {
		flooding[i] = newSpeaker(t, s)
		s.prompt(t, flooding[i].id, "warm", "hello")
		flooding[i].stream.wait(t, 60*time.Second, "the first turn ends", func(e event) bool { return e.Type == "turn_end" })
	}
	before := slow.nextDelay(t, 20)

	began := time.Now()
	text := strings.TrimSpace(strings.Repeat("word ", overloadWords))
	var load sync.WaitGroup
	for _, f := range flooding {
		load.Go(func() {
			for i := 0; i == 0 || time.Since(began) < *overloadTime; i++ {
				if f.failed = f.say(s, fmt.Sprintf("flood%d", i), text); f.failed != nil {
					return
				}
			}
		})
	}
	load.Wait()
	took := time.Since(began)
	for _, f := range flooding {
		require.NoError(t, f.failed)
	}

	recovered := time.Now()
	var after time.Duration
	eventually(t, within, "words come as quickly as before", func() error {
		if after = slow.nextDelay(t, 10); after > max(4*before, 250*time.Millisecond) {
			return fmt.Errorf("%v, before %v", after, before)
		}
		return nil
	})

	words, gaps := 0, make([]time.Duration, len(flooding))
	for i, f := range flooding {
		n, gap := f.received(began)
		require.Zero(t, n%overloadWords, "every word of every turn, once")
		words += n
		gaps[i] = gap
	}
	_, lag := slow.received(began)
	peak := peakMemory(t, s.child(t, "overwinter worker"))
	slices.Sort(gaps)
	t.Logf("%d sessions said %d words in %v (%.0f/s); the longest time without a word was %v to %v, of the slow session %v; its words came after %v, "+
		"and after %v again %v later; the worker had %d MiB", len(flooding), words, took, float64(words)/took.Seconds(), gaps[0], gaps[len(gaps)-1], lag,
		before, after, time.Since(recovered), peak)
	require.LessOrEqual(t, gaps[len(gaps)-1], max(overloadGap*gaps[len(gaps)/2], overloadLag), "fairness between sessions: %v", gaps)
	require.Less(t, lag, overloadLag, "a session that says little has its turn")
	require.Less(t, peak, overloadMemory(*overloadSessions), "MiB of the worker")

	s.must(t, 202, "POST", "/api/sessions/"+slow.id+"/abort", object{})
	slow.stream.wait(t, 60*time.Second, "the slow turn ends", func(e event) bool { return e.Type == "turn_end" })
	conn := s.database(t)
	var runs, attempts, generations int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*), max(attempt) FROM runs").Scan(&runs, &attempts))
	require.Equal(t, 1, attempts, "no run is attempted again")
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT max(generation) FROM sessions WHERE status = 'running'").Scan(&generations))
	require.Equal(t, 1, generations, "no sandbox is lost")
	var lost int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM sessions WHERE status <> 'running'").Scan(&lost))
	require.Zero(t, lost)
}

// overloadMemory bounds the memory of the worker during an overload, in MiB: a quarter of a GiB for itself, 2 for each
// session, and twice what its turns may have read ahead of their commits, since garbage is collected when the heap has
// doubled. docs/limits.md has both limits.
func overloadMemory(sessions int) int {
	const ofATurn, ofAll = 8, 256
	return 256 + 2*sessions + 2*min(ofAll, ofATurn*sessions)
}

// speaker is a session whose agent prints, with its reader.
type speaker struct {
	id     string
	stream *follower
	failed error
}

func newSpeaker(t *testing.T, s *stack) *speaker {
	t.Helper()
	id := s.create(t, object{"idleTimeout": "24h"})
	return &speaker{id: id, stream: s.follow(t, id)}
}

// say makes the agent print a text and returns when its reader has the end of the turn.
func (p *speaker) say(s *stack, promptID, text string) error {
	for until := time.Now().Add(time.Minute); ; {
		status, got, err := s.call("POST", "/api/sessions/"+p.id+"/prompts", object{"id": promptID, "content": text})
		if err == nil && status < 300 {
			break
		}
		if time.Now().After(until) || err == nil && status < 500 {
			return fmt.Errorf("prompt %s: %d %v %w", promptID, status, got, err)
		}
	}
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); <-time.After(20 * time.Millisecond) {
		for _, e := range p.events() {
			if e.Type != "turn_end" {
				continue
			}
			var end struct{ PromptID, Outcome string }
			if err := json.Unmarshal(e.Data, &end); err != nil {
				return err
			}
			if end.PromptID != promptID {
				continue
			}
			if end.Outcome != "completed" {
				return fmt.Errorf("prompt %s ended %s", promptID, e.Data)
			}
			return nil
		}
	}
	return fmt.Errorf("prompt %s did not end", promptID)
}

func (p *speaker) events() []event {
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	return slices.Clone(p.stream.events)
}

// nextDelay returns the median delay of the next words from the agent to the reader.
func (p *speaker) nextDelay(t *testing.T, words int) time.Duration {
	t.Helper()
	from := len(p.events())
	var delays []time.Duration
	eventually(t, 60*time.Second, "the next words come", func() error {
		delays = delays[:0]
		for _, e := range p.events()[from:] {
			if e.Type == "text_delta" {
				delays = append(delays, e.at.Sub(e.At))
			}
		}
		if len(delays) < words {
			return fmt.Errorf("%d of %d", len(delays), words)
		}
		return nil
	})
	slices.Sort(delays)
	return delays[len(delays)/2]
}

// received counts the words since a time, and returns the longest time without one in a turn.
func (p *speaker) received(since time.Time) (words int, longest time.Duration) {
	last := since
	for _, e := range p.events() {
		if e.at.Before(since) {
			continue
		}
		switch e.Type {
		case "turn_start":
			last = e.at
		case "text_delta":
			var d struct{ Delta string }
			if json.Unmarshal(e.Data, &d) == nil {
				words += len(strings.Fields(d.Delta))
			}
			longest = max(longest, e.at.Sub(last))
			last = e.at
		}
	}
	return words, longest
}

// peakMemory returns the peak memory of a process, in MiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		if value, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(value)), "kB")))
			require.NoError(t, err)
			return kib >> 10
		}
	}
	require.FailNow(t, "no VmHWM in the status of the process")
	return 0
}

// database connects to the system's Postgres.
func (s *stack) database(t *testing.T) *pgx.Conn {
	t.Helper()
	url, err := os.ReadFile(filepath.Join(s.dir, "database-url"))
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), strings.TrimSpace(string(url)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}
