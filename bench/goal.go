package main

import (
	"fmt"
	"time"
)

// goal is the required value of a figure, usually relative to its floor.
type goal struct {
	text string // empty: there is no goal
	met  func(figure, floor value) bool
}

// noGoal is for figures that are only informative.
var noGoal = goal{}

// within requires at most a multiple of the floor, at the median.
func within(factor float64) goal {
	return goal{
		text: fmt.Sprintf("≤ %g × floor", factor),
		met:  func(figure, floor value) bool { return floor.n > 0 && figure.p50 <= factor*floor.p50 },
	}
}

// withinBoth requires at most a multiple of the floor, at the median and at p99.
func withinBoth(factor float64) goal {
	return goal{
		text: fmt.Sprintf("p50 and p99 ≤ %g × floor", factor),
		met: func(figure, floor value) bool {
			return floor.n > 0 && figure.p50 <= factor*floor.p50 && figure.p99 <= factor*floor.p99
		},
	}
}

// reaches requires at least a share of the floor.
func reaches(share float64) goal {
	return goal{
		text: fmt.Sprintf("≥ %g × floor", share),
		met:  func(figure, floor value) bool { return floor.n > 0 && figure.p50 >= share*floor.p50 },
	}
}

// above requires at most a distance from the floor, at the median.
func above(most time.Duration) goal {
	return goal{
		text: "≤ floor + " + show(most),
		met:  func(figure, floor value) bool { return floor.n > 0 && figure.p50-floor.p50 <= most.Seconds() },
	}
}

// exceedsBy requires at most a distance from the floor, in the figure's unit.
func exceedsBy(most value) goal {
	return goal{
		text: "≤ floor + " + most.middle(),
		met:  func(figure, floor value) bool { return floor.n > 0 && figure.p50-floor.p50 <= most.p50 },
	}
}

// quantiles bounds the figure itself.
func quantiles(p50, p99 time.Duration) goal {
	return goal{
		text: fmt.Sprintf("p50 ≤ %s, p99 ≤ %s", show(p50), show(p99)),
		met:  func(figure, _ value) bool { return figure.p50 <= p50.Seconds() && figure.p99 <= p99.Seconds() },
	}
}

// atMost bounds the median of the figure.
func atMost(most value) goal {
	return goal{text: "≤ " + most.middle(), met: func(figure, _ value) bool { return figure.p50 <= most.p50 }}
}

// atLeast bounds the figure from below.
func atLeast(least value) goal {
	return goal{text: "≥ " + least.middle(), met: func(figure, _ value) bool { return figure.p50 >= least.p50 }}
}
