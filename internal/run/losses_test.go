package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/run"
)

func TestQuarantineRules(t *testing.T) {
	t.Parallel()
	type lost struct {
		doing run.Doing
		frame int64
	}
	const nothing, attached, reading, handling, panicked = run.DoingNothing, run.DoingAttached, run.DoingReading, run.DoingHandling, run.DoingPanicked
	for name, c := range map[string]struct {
		lost []lost
		want bool
	}{
		"one":                                    {[]lost{{attached, 7}}, false},
		"one that panicked":                      {[]lost{{panicked, 7}}, false},
		"the second while it handles the frames": {[]lost{{attached, 7}, {handling, 7}}, true},
		"two panics":                             {[]lost{{panicked, 7}, {panicked, 7}}, true},
		"a loss, then a panic":                   {[]lost{{attached, 7}, {panicked, 7}}, true},
		"with an orderly end between":            {[]lost{{attached, 7}, {nothing, 7}, {handling, 7}}, true},
		"a silent agent, killed at every attempt": {
			[]lost{{attached, 7}, {attached, 7}, {attached, 7}, {attached, 7}, {attached, 7}, {attached, 7}, {attached, 7}}, false,
		},
		"deploys only":                      {[]lost{{nothing, 7}, {nothing, 7}, {nothing, 7}}, false},
		"handling, with progress each time": {[]lost{{attached, 7}, {handling, 8}, {handling, 9}, {handling, 10}}, false},
		"killed twice while it reads":       {[]lost{{attached, 7}, {reading, 7}}, false},
		"five in a row, with frames that wait": {
			[]lost{{attached, 7}, {reading, 7}, {reading, 7}, {reading, 7}, {reading, 7}}, true,
		},
	} {
		l := run.Losses{Frame: -1}
		for _, lost := range c.lost {
			l = l.After(lost.doing, lost.frame)
		}
		require.Equal(t, c.want, l.Quarantine(), "%s: %+v", name, l)
	}
}
