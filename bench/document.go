package main

import (
	"fmt"
	"strings"
)

// report has all measurements.
type report struct {
	machine  machine
	sections []*section
}

// handwritten returns the manually written part of a document: everything from the first ruled line
// on.
func handwritten(document string) string {
	const line = "\n---\n"
	if _, rest, found := strings.Cut(document, line); found {
		return line + rest
	}
	return ""
}

// markdown returns the whole document.
func (r *report) markdown() string {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	m := r.machine
	write("# Benchmarks\n")
	write("Written by `make bench`, which measures this on any machine. The text after the ruled line at the end is written by hand.\n")
	write("## Machine\n")
	write("- %s, revision %s", m.at.Format("2006-01-02 15:04 MST"), m.revision)
	write("- %d cores of %s, %.0f GiB, Linux %s", m.cores, m.cpu, m.memoryGiB, m.kernel)
	write("- Postgres: %s", m.postgres)
	write("- Load averages before anything was started: %s\n", m.before)
	write("## Goals\n")
	r.writeGoals(write)
	write("## Method\n")
	write("%s", method)
	for _, s := range r.sections {
		s.write(write)
	}
	r.writeParts(write)
	return b.String()
}

const method = "`bench` starts `overwinter dev` on free ports with a temporary data directory and uses it through HTTP and server-sent events. " +
	"Everything shares this machine and its clock: Postgres, Temporal, worker, api, local Modal, the sandboxes, and the bench with all its readers.\n\n" +
	"A *floor* is the same necessary operations, bare, on the same Postgres, Temporal and local Modal, or the agent's own process. Figure and floor alternate within the same seconds, " +
	"so that other load slows down both; compare ratios rather than times between runs. " +
	"p50 and p99 are nearest-rank quantiles: with fewer than 100 samples p99 is the maximum. " +
	"CPU time is that of all processes of the part of the system, from `/proc`; a process that has ended counts for the part of its parent.\n"

// writeGoals lists every goal with its verdict.
func (r *report) writeGoals(write func(string, ...any)) {
	write("| part | figure | measured | floor | ratio | goal | met |")
	write("|---|---|--:|--:|--:|---|---|")
	for _, s := range r.sections {
		for _, row := range s.rows {
			if row.goal.text == "" {
				continue
			}
			write("| %s | %s | %s | %s | %s | %s | %s |", s.part, row.name, both(row.figure), both(row.floor), row.ratio(), row.goal.text, row.verdict())
		}
		if s.failed != "" {
			write("| %s | | | | | | not finished |", s.part)
		}
	}
	write("")
}

// both formats the median and, if measured, p99.
func both(v value) string {
	if high := v.high(); high != "" {
		return v.middle() + " / " + high
	}
	return v.middle()
}

func (s *section) write(write func(string, ...any)) {
	write("## %s\n", s.title)
	for _, note := range s.notes {
		write("%s\n", note)
	}
	if s.failed != "" {
		write("**Not finished**: %s\n", strings.Join(strings.Fields(s.failed), " "))
	}
	if len(s.rows) == 0 {
		return
	}
	write("| figure | n | p50 | p99 | floor | p50 | p99 | ratio | goal | met |")
	write("|---|--:|--:|--:|---|--:|--:|--:|---|---|")
	for _, r := range s.rows {
		if r.skipped != "" {
			write("| %s | 0 | | | not measured: %s | | | | %s | %s |", r.name, strings.ReplaceAll(r.skipped, "|", "/"), r.goal.text, r.verdict())
			continue
		}
		write("| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s |", r.name, r.figure.n, r.figure.middle(), r.figure.high(),
			r.floorName, r.floor.middle(), r.floor.high(), r.ratio(), r.goal.text, r.verdict())
	}
	write("")
}

// writeParts writes the duration of each part.
func (r *report) writeParts(write func(string, ...any)) {
	write("## Duration\n")
	write("| part | took |\n|---|--:|")
	for _, s := range r.sections {
		write("| %s | %s |", s.part, show(s.took))
	}
	write("")
}
