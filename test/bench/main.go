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

// options say what is measured and how much of it.
type options struct {
	Bin  string   `default:"bin" type:"path" help:"Directory with the three programs. Default ${default}."`
	Out  string   `default:"docs/benchmarks.md" type:"path" help:"The document to write; - for stdout, where --only and --skip always write. Default ${default}."`
	Only []string `placeholder:"PART" help:"Run only these parts."`
	Skip []string `placeholder:"PART" help:"Run all parts but these."`
	List bool     `help:"List the parts and exit."`

	Starts   int           `default:"2" help:"Starts with an empty data directory, and as many with a used one. Default ${default}."`
	Rounds   int           `default:"60" help:"Prompts of a part that measures prompts, each next to one sample of every floor. Default ${default}."`
	Sleeps   int           `default:"10" help:"Hibernations and wakes of a part that measures them. Default ${default}."`
	Limit    time.Duration `default:"20s" help:"Time after which a series of rounds ends early. Default ${default}."`
	Sessions int           `default:"100" help:"Sessions of parts that measure load. Default ${default}."`
	Pause    time.Duration `default:"100ms" help:"Between two words of a session under load. Default ${default}."`
	Burst    int           `default:"300" help:"Words that every session says without a pause. Default ${default}."`
	Window   time.Duration `default:"10s" help:"Duration of a measurement of rates or CPU time. Default ${default}."`
	Readers  int           `default:"500" help:"Readers of one session. Default ${default}."`
}

func main() {
	runInSandbox()
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
	if err != nil {
		return err
	}
	document := r.markdown()
	if o.Out == "-" || len(chosen) < len(parts) {
		_, err = io.WriteString(stdout, document)
		return err
	}
	old, err := os.ReadFile(o.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(o.Out, []byte(document+handwritten(string(old))), 0o644) //nolint:gosec // a document
}

// parts are the chosen parts, in the order of the list.
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
	// measure fills the section. What is there when it fails is reported too.
	measure func(ctx context.Context, b *bench, s *section) error
}

var parts = []part{
	{"start", "start of overwinter dev", measureStarts},
	{"turn", "prompts, hibernation and wake of one session", measureTurns},
	{"words", "many sessions that speak at a steady pace", measureWords},
	{"burst", "many sessions that speak as fast as they can", measureBurst},
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

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), loadAverage(), fmt.Sprintf(format, args...))
}

// measure runs parts. It fails only if ctx ends: a part that fails is reported.
func measure(ctx context.Context, o options, chosen []part, progress io.Writer) (_ *report, err error) {
	b := &bench{options: o, machine: readMachine(ctx), progress: progress}
	defer func() { err = errors.Join(err, b.release(context.WithoutCancel(ctx))) }()
	r := &report{}
	for _, p := range chosen {
		s := &section{part: p.name, title: strings.ToUpper(p.about[:1]) + p.about[1:]}
		b.say("%s", p.name)
		began := time.Now()
		if err := p.measure(ctx, b, s); err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			b.say("%s: %v", p.name, err)
			s.failed = err.Error()
			if err := b.release(ctx); err != nil { // the next part gets a new system
				b.say("%s: %v", p.name, err)
			}
		}
		s.took = time.Since(began)
		r.sections = append(r.sections, s)
	}
	r.machine = b.machine
	return r, nil
}

// system returns the system that parts share, and starts it if none runs.
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

// newSystem starts a system for one part.
func (b *bench) newSystem(ctx context.Context) (_ *system, err error) {
	st, err := newStack(ctx, b.options.Bin)
	if err != nil {
		return nil, err
	}
	s := &system{stack: st}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	if _, err := st.start(ctx); err != nil {
		return nil, err
	}
	s.client = newClient(st.api)
	if s.bare, err = openBare(ctx, st); err != nil {
		return nil, err
	}
	b.machine.postgres = s.bare.settings
	return s, nil
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
