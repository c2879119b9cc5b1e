package main

import (
	"fmt"
	"time"
)

// unit selects the format of a value.
type unit int

const (
	seconds unit = iota
	perSecond
	bytesPerSecond
	byteSize
	cores
	count
	times
)

// value is a measurement: the distribution of n samples, or one number.
type value struct {
	n    int // 0: nothing was measured
	p50  float64
	p99  float64
	unit unit
	// distributed reports whether p99 was measured.
	distributed bool
}

// distribution returns the value of durations.
func distribution(s *samples) value {
	return value{n: s.n(), p50: s.p50().Seconds(), p99: s.p99().Seconds(), unit: seconds, distributed: true}
}

// number returns a value measured once, or the mean of a whole measurement.
func number(v float64, u unit) value { return value{n: 1, p50: v, unit: u} }

// none is the floor of a figure without a floor.
var none = value{}

func (v value) show(f float64) string {
	switch v.unit {
	case seconds:
		return showSeconds(f)
	case perSecond:
		return fmt.Sprintf("%s/s", digits(f))
	case bytesPerSecond:
		return fmt.Sprintf("%s MB/s", digits(f/1e6))
	case byteSize:
		if f < 1<<20 && f > -(1<<20) {
			return fmt.Sprintf("%s KiB", digits(f/(1<<10)))
		}
		return fmt.Sprintf("%s MiB", digits(f/(1<<20)))
	case cores:
		return fmt.Sprintf("%.3f cores", f)
	case count, times:
		return digits(f)
	}
	panic(fmt.Sprintf("no such unit: %d", v.unit))
}

// middle and high return the cells of a table.
func (v value) middle() string {
	if v.n == 0 {
		return ""
	}
	return v.show(v.p50)
}

func (v value) high() string {
	if v.n == 0 || !v.distributed {
		return ""
	}
	return v.show(v.p99)
}

// digits prints about three digits.
func digits(f float64) string {
	switch a := max(f, -f); {
	case a >= 100 || a == 0:
		return fmt.Sprintf("%.0f", f)
	case a >= 10:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.2f", f)
	}
}

func showSeconds(s float64) string {
	ms := s * 1e3
	switch a := max(ms, -ms); {
	case a >= 10e3:
		return fmt.Sprintf("%.1f s", s)
	case a >= 1e3:
		return fmt.Sprintf("%.2f s", s)
	case a >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f µs", ms*1e3)
	}
}

// show prints a duration with about three digits.
func show(d time.Duration) string { return showSeconds(d.Seconds()) }
