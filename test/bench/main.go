package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// options say how much is measured.
type options struct {
	Bin      string        `default:"bin" type:"path" help:"Directory with the three programs. Default ${default}."`
	Out      string        `default:"docs/benchmarks.md" type:"path" help:"The document to write; - for stdout. Default ${default}."`
	Rounds   int           `default:"100" help:"Prompts per load, each beside one sample of every floor. Default ${default}."`
	Sleeps   int           `default:"15" help:"Hibernations and wakes per load. Default ${default}."`
	Limit    time.Duration `default:"1m" help:"When prompts, and then sleeps, of a load end early, however many there were. Default ${default}."`
	Starts   int           `default:"3" help:"Starts with an empty data directory, and as many with a used one. Default ${default}."`
	Sessions int           `default:"100" help:"Sessions at work under load. Default ${default}."`
	Pause    time.Duration `default:"100ms" help:"Between two words of a session at work. Default ${default}."`
	Calm     time.Duration `default:"200ms" help:"Between two words under the lighter of two loads of all sessions. Default ${default}."`
	Burst    int           `default:"100" help:"Words that every session says without a pause to find the throughput. Default ${default}."`
}

func main() {
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
	r, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	document := r.markdown()
	if o.Out == "-" {
		_, err = io.WriteString(stdout, document)
		return err
	}
	old, err := os.ReadFile(o.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(o.Out, []byte(document+byHand(string(old))), 0o644) //nolint:gosec // a document
}

// byHand is the part of a document that people write: all from the first ruled line on.
func byHand(document string) string {
	const line = "\n---\n"
	if _, rest, found := strings.Cut(document, line); found {
		return line + rest
	}
	return ""
}

// report is everything that was measured.
type report struct {
	options options
	machine machine
	cold    *samples // start of dev with an empty data directory
	warm    *samples
	loads   []*load
	burst   throughput
}

// load is what was measured while a number of sessions were at work.
type load struct {
	sessions int
	pause    time.Duration // between two words of each
	at       string        // what else the machine did
	took     time.Duration
	usage    usage
	floors   floors
	prompts  prompts
	lines    lines
	sleeps   sleeps
}

// measure starts systems, measures and stops them.
func measure(ctx context.Context, o options, progress io.Writer) (_ *report, err error) {
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, loadAverage()+"  "+format+"\n", args...)
	}
	r := &report{options: o, machine: readMachine(ctx), cold: &samples{}, warm: &samples{}}

	var s *stack
	defer func() {
		if s != nil {
			err = errors.Join(err, s.stop(), s.remove())
		}
	}()
	for i := range o.Starts {
		say("start of dev, %d of %d", i+1, o.Starts)
		if s != nil {
			if err := errors.Join(s.stop(), s.remove()); err != nil {
				return nil, err
			}
		}
		if s, err = newStack(ctx, o.Bin); err != nil {
			return nil, err
		}
		for _, into := range []*samples{r.cold, r.warm} {
			if err := s.stop(); err != nil {
				return nil, err
			}
			took, err := s.start(ctx)
			if err != nil {
				return nil, err
			}
			into.add(took)
		}
	}

	b, err := openBare(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	r.machine.postgres = b.settings
	c := newClient(s.api)
	defer c.close()

	for _, l := range []*load{
		{sessions: 1, pause: o.Pause},
		{sessions: o.Sessions, pause: o.Calm},
		{sessions: o.Sessions, pause: o.Pause},
	} {
		say("%s", l.name())
		if err := l.measure(ctx, o, s, b, c); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name(), err)
		}
		r.loads = append(r.loads, l)
	}

	say("throughput")
	if r.burst, err = measureThroughput(ctx, o, b, c); err != nil {
		return nil, fmt.Errorf("throughput: %w", err)
	}
	return r, nil
}

// name says what the load is.
func (l *load) name() string {
	if l.sessions == 1 {
		return fmt.Sprintf("1 session at work, a word every %s", l.pause)
	}
	return fmt.Sprintf("%d sessions at work, a word every %s each", l.sessions, l.pause)
}

// measure has sessions at work, and one more that is measured.
func (l *load) measure(ctx context.Context, o options, s *stack, b *bare, c *client) error {
	crowd, err := startCrowd(ctx, c, l.sessions, l.pause)
	if err != nil {
		return err
	}
	defer crowd.stop(context.WithoutCancel(ctx))
	probe, err := newProbe(ctx, c, 5) // caches and connections are warm after a few prompts
	if err != nil {
		return err
	}
	defer probe.close(context.WithoutCancel(ctx))

	began, before := time.Now(), readUsage(s.pid())
	crowd.lines.record(true)
	if err := probe.promptRounds(ctx, b, o.Rounds, o.Limit, l); err != nil {
		return fmt.Errorf("prompts: %w", err)
	}
	crowd.lines.record(false)
	if err := probe.sleepRounds(ctx, b, o.Sleeps, o.Limit, l); err != nil {
		return fmt.Errorf("hibernate and wake: %w", err)
	}
	l.took, l.at = time.Since(began), loadAverage()
	l.usage = readUsage(s.pid()).since(before, l.took)
	l.lines = crowd.lines.result()
	return crowd.err()
}
