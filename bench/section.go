package main

import (
	"fmt"
	"time"
)

// section has the measurements of one part.
type section struct {
	part   string
	title  string
	notes  []string // paragraphs before the table
	rows   []row
	failed string // the reason why the part did not finish
	took   time.Duration
}

// row is one line of a table.
type row struct {
	name      string
	figure    value
	floorName string
	floor     value
	goal      goal
	skipped   string // the reason why it was not measured
}

func (s *section) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// compare adds a figure with its floor and its goal.
func (s *section) compare(name string, figure value, floorName string, floor value, g goal) {
	s.rows = append(s.rows, row{name: name, figure: figure, floorName: floorName, floor: floor, goal: g})
}

// add adds a figure without a floor.
func (s *section) add(name string, figure value, g goal) { s.compare(name, figure, "", none, g) }

// skip adds a figure that could not be measured.
func (s *section) skip(name, reason string, g goal) {
	s.rows = append(s.rows, row{name: name, goal: g, skipped: reason})
}

// verdict reports whether the goal was met.
func (r row) verdict() string {
	switch {
	case r.goal.text == "":
		return ""
	case r.skipped != "" || r.figure.n == 0:
		return "not measured"
	case r.goal.met(r.figure, r.floor):
		return "yes"
	}
	return "**no**"
}

// ratio returns the figure as a multiple of its floor.
func (r row) ratio() string {
	if r.figure.n == 0 || r.floor.n == 0 || r.floor.p50 == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.figure.p50/r.floor.p50)
}
