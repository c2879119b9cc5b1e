package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

// samples are durations of one kind. It is safe for concurrent use.
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

// quantile returns the smallest sample that is at least as large as a share q of all samples; 0
// without samples.
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

// sum adds the samples of the same round. All kinds must have the same number of samples.
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
