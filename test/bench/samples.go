package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

// samples are durations of one kind. They may be added by many goroutines.
type samples struct {
	mu     sync.Mutex
	values []time.Duration
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, d)
}

func (s *samples) n() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

// quantile is the smallest sample that a share q of all is not above; 0 without samples.
func (s *samples) quantile(q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.values))
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

func (s *samples) p50() time.Duration { return s.quantile(0.50) }
func (s *samples) p99() time.Duration { return s.quantile(0.99) }

// least is the smallest sample.
func (s *samples) least() time.Duration { return s.quantile(0) }

// sum adds up what was measured in the same round. Kinds must have as many samples each.
func sum(kinds ...*samples) *samples {
	out := &samples{}
	for i := range kinds[0].values {
		var total time.Duration
		for _, k := range kinds {
			total += k.values[i]
		}
		out.add(total)
	}
	return out
}
