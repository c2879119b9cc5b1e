package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// options select the measurements and their sizes.
type options struct {
	Bin  string   `default:"bin" type:"path" help:"Directory with the three programs. Default ${default}."`
	Out  string   `default:"docs/benchmarks.md" type:"path" help:"Document to write; - for stdout, which --only and --skip always use. Default ${default}."`
	Only []string `placeholder:"PART" help:"Run only these parts."`
	Skip []string `placeholder:"PART" help:"Run all parts but these."`
	List bool     `help:"List the parts and exit."`

	Starts   int           `default:"2" help:"Number of starts with an empty data directory, and as many with a used one. Default ${default}."`
	Rounds   int           `default:"60" help:"Prompts of a part that measures prompts, each with one sample of every floor. Default ${default}."`
	Sleeps   int           `default:"10" help:"Hibernations and wakes of a part that measures them. Default ${default}."`
	Limit    time.Duration `default:"20s" help:"Time after which a series of rounds ends early. Default ${default}."`
	Sessions int           `default:"100" help:"Sessions of parts that measure load. Default ${default}."`
	Pause    time.Duration `default:"100ms" help:"Pause between two words of a session under load, or with many readers. Default ${default}."`
	Burst    int           `default:"300" help:"Words that each session writes without a pause. Default ${default}."`
	Window   time.Duration `default:"10s" help:"Duration of a measurement of rates or CPU time. Default ${default}."`
	Sleepers int           `default:"100000" help:"Stored sessions of the part sleepers; make bench-sleepers uses a million. Default ${default}."`
	Idle     time.Duration `default:"60s" help:"Duration for which idle systems are observed. Default ${default}."`
	Files    []int         `default:"100,10000,100000" help:"Files in the workspaces of the part workspaces. Default ${default}."`
	Transfer int           `default:"512" help:"Size of a transfer of the part network, in MiB. Default ${default}."`
	LogRows  int           `default:"200000" help:"Events that the part log writes. Default ${default}."`
	Open     int           `default:"1000" help:"Sessions of the part worker that sleep with an open workflow. Default ${default}."`
	Streams  int           `default:"100" help:"Sessions of the part worker that stream. Default ${default}."`
	Readers  int           `default:"500" help:"Readers of one session. Default ${default}."`
}

func main() {
	playRole()
	var o options
	kong.Parse(&o, kong.Name("bench"), kong.Description("Measures overwinter on this machine and writes docs/benchmarks.md."))
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx, os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, stdout, progress io.Writer) error {
	if o.List {
		for _, p := range parts {
			fmt.Fprintf(stdout, "%-12s %s\n", p.name, p.about)
		}
		return nil
	}
	chosen, err := o.parts()
	if err != nil {
		return err
	}
	r, err := measure(ctx, o, chosen, progress)
	document := r.markdown()
	if err != nil || o.Out == "-" || len(chosen) < len(parts) {
		_, failed := io.WriteString(stdout, document)
		return errors.Join(err, failed)
	}
	old, err := os.ReadFile(o.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(o.Out, []byte(document+handwritten(string(old))), 0o644)
}

// parts returns the selected parts, in the order of the list.
func (o options) parts() ([]part, error) {
	for _, name := range slices.Concat(o.Only, o.Skip) {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("no such part: %s; --list shows them", name)
		}
	}
	var out []part
	for _, p := range parts {
		if (len(o.Only) == 0 || slices.Contains(o.Only, p.name)) && !slices.Contains(o.Skip, p.name) {
			out = append(out, p)
		}
	}
	return out, nil
}

// part is one measurement of the bench.
type part struct {
	name  string // for --only
	about string // one line
	// measure fills the section. If it fails, the rows up to then are reported too.
	measure func(ctx context.Context, b *bench, s *section) error
}

var parts = []part{
	{"start", "start of overwinter dev", measureStarts},
	{"turn", "prompts, hibernation and wake of one session", measureTurns},
	{"words", "many sessions that speak at a steady pace", measureWords},
	{"burst", "many sessions that speak as fast as they can", measureBurst},
	{"readers", "many readers of one session", measureReaders},
	{"protocols", "readers of one log by every protocol", measureProtocols},
	{"overload", "twice the load that the system carries", measureOverload},
	{"workspaces", "hibernation and wake with many files", measureWorkspaces},
	{"claude", "sessions of Claude Code and its bare processes", measureClaude},
	{"texts", "first text of OpenCode and Gemini CLI", measureTexts},
	{"log", "writing and reading the event log", measureLog},
	{"network", "network and start of a sandbox", measureNetwork},
	{"worker", "memory of one worker with many open sessions", measureWorker},
	{"sleepers", "lists and idle load with very many sessions", measureSleepers},
}

// bench is a run of the bench.
type bench struct {
	options  options
	machine  machine
	progress io.Writer
	shared   *system // nil until a part needs it
}

// system is a running stack with clients for it.
type system struct {
	*stack
	bare   *bare
	client *client
}

// logf reports progress.
func (b *bench) logf(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), loadAverage(), fmt.Sprintf(format, args...))
}

// measure runs parts until ctx ends. A failed part is only reported. Measurements are returned even
// with an error.
func measure(ctx context.Context, o options, chosen []part, progress io.Writer) (r *report, err error) {
	b := &bench{options: o, machine: readMachine(ctx), progress: progress}
	defer func() { err = errors.Join(err, b.release(context.WithoutCancel(ctx))) }()
	r = &report{}
	defer func() { r.machine = b.machine }()
	for _, p := range chosen {
		s := &section{part: p.name, title: strings.ToUpper(p.about[:1]) + p.about[1:]}
		b.logf("%s", p.name)
		began := time.Now()
		err := p.measure(ctx, b, s)
		s.took = time.Since(began)
		r.sections = append(r.sections, s)
		if err != nil {
			s.failed = err.Error()
			if ctx.Err() != nil {
				return r, fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
			}
			b.logf("%s: %v", p.name, err)
			if err := b.release(ctx); err != nil { // the next part gets a new system
				b.logf("%s: %v", p.name, err)
			}
		}
	}
	return r, nil
}

// system returns the shared system, and starts it if it does not run.
func (b *bench) system(ctx context.Context) (*system, error) {
	if b.shared == nil {
		s, err := b.newSystem(ctx)
		if err != nil {
			return nil, err
		}
		b.shared = s
	}
	return b.shared, nil
}

// newSystem starts a system for one part, with more flags of `overwinter dev`.
func (b *bench) newSystem(ctx context.Context, flags ...string) (_ *system, err error) {
	st, err := newStack(ctx, b.options.Bin, flags...)
	if err != nil {
		return nil, err
	}
	s := &system{stack: st}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	b.machine.postgres = s.bare.settings
	return s, nil
}

// open starts the system and connects to it.
func (s *system) open(ctx context.Context) (err error) {
	if _, err := s.start(ctx); err != nil {
		return err
	}
	s.client = newClient(s.api)
	s.bare, err = openBare(ctx, s.stack)
	return err
}

// restart stops the system and starts it with the same data.
func (s *system) restart(ctx context.Context) error {
	s.client.close()
	err := errors.Join(s.bare.close(ctx), s.stop())
	s.bare = nil
	if err != nil {
		return err
	}
	return s.open(ctx)
}

// release stops the shared system.
func (b *bench) release(ctx context.Context) error {
	if b.shared == nil {
		return nil
	}
	s := b.shared
	b.shared = nil
	return s.close(ctx)
}

// close stops the system and removes its data.
func (s *system) close(ctx context.Context) error {
	var errs []error
	if s.client != nil {
		s.client.close()
	}
	if s.bare != nil {
		errs = append(errs, s.bare.close(ctx))
	}
	return errors.Join(append(errs, s.stop(), s.remove())...)
}
