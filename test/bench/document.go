package main

import (
	"fmt"
	"strings"
	"time"
)

// goal is what a figure should be beside its floor.
type goal struct {
	text string
	met  func(figure, floor *samples) bool
}

// within is a multiple of the floor, at the median.
func within(times float64) goal {
	return goal{
		text: fmt.Sprintf("p50 within %g× of the floor", times),
		met: func(figure, floor *samples) bool {
			return float64(figure.p50()) <= times*float64(floor.p50())
		},
	}
}

// above is a distance from the floor, at the median.
func above(most time.Duration) goal {
	return goal{
		text: fmt.Sprintf("p50 within %s of the floor", most),
		met:  func(figure, floor *samples) bool { return figure.p50()-floor.p50() <= most },
	}
}

// atMost bounds the figure itself.
func atMost(p50, p99 time.Duration) goal {
	return goal{
		text: fmt.Sprintf("p50 ≤ %s, p99 ≤ %s", p50, p99),
		met:  func(figure, _ *samples) bool { return figure.p50() <= p50 && figure.p99() <= p99 },
	}
}

// figure is one line of the table.
type figure struct {
	name      string
	samples   *samples
	floor     *samples
	floorName string
	goal      goal
}

// figures are the lines of a load's table.
func (l *load) figures() []figure {
	f := &l.floors
	return []figure{
		{"prompt → 202", &l.prompts.accepted, sum(&f.commit, &f.signal), "commit + signal", within(2)},
		{"prompt → agent has it", &l.prompts.heard, sum(&f.activity, &f.commit, &f.exec), "signal → activity + commit + exec", within(1.5)},
		{"agent's line → reader", l.lines.delay, sum(&f.line, &f.commit), "line of an exec + commit", atMost(30*time.Millisecond, 100*time.Millisecond)},
		{"hibernate → `hibernated` at the reader", &l.sleeps.hibernated, sum(&f.snapshot, &f.end), "snapshot + terminate", above(150 * time.Millisecond)},
		{"prompt to a sleeper → agent has it", &l.sleeps.heard, &f.restore, "restore", above(150 * time.Millisecond)},
	}
}

// bareFigures are the floors one by one.
func (l *load) bareFigures() []figure {
	f := &l.floors
	return []figure{
		{name: "commit of one row", samples: &f.commit},
		{name: "signal", samples: &f.signal},
		{name: "signal → activity started", samples: &f.activity},
		{name: "exec through the SDK → its first byte", samples: &f.exec},
		{name: "line of that process → here", samples: &f.line},
		{name: "create", samples: &f.create},
		{name: "restore (create from a session's snapshot)", samples: &f.restore},
		{name: "snapshot", samples: &f.snapshot},
		{name: "terminate", samples: &f.end},
	}
}

// sideFigures have no goal.
func (l *load) sideFigures() []figure {
	return []figure{
		{name: "prompt of one word → `turn_end` at the reader", samples: &l.prompts.ended},
		{name: "prompt to a sleeper → 202", samples: &l.sleeps.accepted},
	}
}

// markdown is the whole document.
func (r *report) markdown() string {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	m := r.machine
	write("# Benchmarks\n")
	write("Written by `make bench`, which measures this on any machine; what is below the line at the end was written by hand.\n")
	write("## Machine\n")
	write("- %s, revision %s", m.at.Format("2006-01-02 15:04 MST"), m.revision)
	write("- %d cores of %s, %.0f GiB, Linux %s", m.cores, m.cpu, m.memoryGiB, m.kernel)
	write("- Postgres: %s", m.postgres)
	write("- Load averages before anything was started: %s\n", m.before)
	write("## Method\n")
	write("%s", method)
	for _, l := range r.loads {
		l.write(write)
	}
	write("## Start of `overwinter dev`\n")
	write("From the start of the process until `/readyz` says 200; no floor.\n")
	write("| figure | n | p50 | most |\n|---|--:|--:|--:|")
	write("| empty data directory | %d | %s | %s |", r.cold.n(), show(r.cold.p50()), show(r.cold.quantile(1)))
	write("| used data directory | %d | %s | %s |\n", r.warm.n(), show(r.warm.p50()), show(r.warm.quantile(1)))
	t := r.burst
	write("## Throughput\n")
	write("%d agents speak %d words each without a pause: **%.0f events/s** (%d events in %s, from the first word of any agent until the last event is with its reader). "+
		"Floor: one connection stores %.0f rows/s of that size in bare commits of %d.\n",
		t.sessions, r.options.Burst, t.rate(), t.events, show(t.took), t.rows, rowsPerCommit)
	return b.String()
}

const method = "`test/bench` starts `overwinter dev` on free ports with a temporary data directory and measures through HTTP and server-sent events with the agent `demo`. " +
	"Everything shares this machine and its clock: Postgres, Temporal, worker, api, local Modal, the sandboxes, and the bench itself with all its readers.\n\n" +
	"Beside each figure stands its *floor*: the same necessary operations, bare, on the same Postgres, Temporal and local Modal. In each round every floor is sampled once and then one prompt is sent (one hibernation and one wake with the life of one bare sandbox, likewise), so that whatever else the machine does slows down both alike. A floor of several operations is summed round by round. " +
	"The rounds are done by one session while the said number of others speak, a word every pause, each with a reader of its own.\n\n" +
	"- *commit*: `INSERT` of one row, `synchronous_commit` on. *signal*: `SignalWorkflow` to a workflow of the bench's own. *signal → activity*: the same signal, until the activity runs that follows from it. *exec*: call of the SDK until the first byte of `sh` is here. *line*: `date` in that shell until its line is here.\n" +
	"- *agent has it*: the agent's own time of its first word, at the end of its millisecond. It has read the prompt and written it to its transcript by then.\n" +
	"- *line → reader*: the agent's own time of each word, rounded down to its millisecond, until the reader has the whole event. All readers' events are counted.\n" +
	"- *restore*: create from the very snapshot that the session sleeps in. *snapshot*: of that sandbox after one small file was written.\n" +
	"- p50 and p99 are nearest-rank quantiles: with fewer than 100 samples p99 is the greatest. *Cores* is processor time by time elapsed; *others* is whatever does not belong to the system or the bench.\n"

func (l *load) write(write func(string, ...any)) {
	write("## With %s\n", l.name())
	write("%s long, load average %s; cores used: %.2f by the system with its sandboxes, %.2f by the bench, %.2f by others. Readers got %.0f words a second.\n",
		show(l.took), l.at, l.usage.system, l.usage.bench, l.usage.others, float64(l.lines.events)/l.lines.elapsed.Seconds())
	write("| figure | n | p50 | p99 | floor | p50 | p99 | ratio | over | goal | met |")
	write("|---|--:|--:|--:|---|--:|--:|--:|--:|---|---|")
	for _, f := range l.figures() {
		met := "**no**"
		if f.goal.met(f.samples, f.floor) {
			met = "yes"
		}
		write("| %s | %d | %s | %s | %s | %s | %s | %.2f | %s | %s | %s |",
			f.name, f.samples.n(), show(f.samples.p50()), show(f.samples.p99()), f.floorName, show(f.floor.p50()), show(f.floor.p99()),
			float64(f.samples.p50())/float64(f.floor.p50()), show(f.samples.p50()-f.floor.p50()), f.goal.text, met)
	}
	write("\n| beside | n | p50 | p99 |\n|---|--:|--:|--:|")
	for _, f := range l.sideFigures() {
		write("| %s | %d | %s | %s |", f.name, f.samples.n(), show(f.samples.p50()), show(f.samples.p99()))
	}
	write("\n| floor | n | p50 | p99 |\n|---|--:|--:|--:|")
	for _, f := range l.bareFigures() {
		write("| %s | %d | %s | %s |", f.name, f.samples.n(), show(f.samples.p50()), show(f.samples.p99()))
	}
	write("")
}

// show prints a duration with about three digits.
func show(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond || d <= -10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
}
