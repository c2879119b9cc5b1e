package memsandbox_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/drivertest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness)
	drivertest.RunFaults(t, harness)
}

func harness(t *testing.T) drivertest.Harness {
	t.Helper()
	drv := memsandbox.New()
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	register(drv)
	return drivertest.Harness{
		Driver: drv, Second: drv, Image: "debian:12", OtherImage: "debian:13",
		Commands: commands, Faults: faults{drv}, Unsupported: []drivertest.Ability{drivertest.OwnNetworks},
	}
}

// faults injects faults into a provider in memory.
type faults struct{ drv *memsandbox.Driver }

var ops = map[drivertest.Call]memsandbox.Op{
	drivertest.Create: memsandbox.OpCreate, drivertest.Terminate: memsandbox.OpTerminate, drivertest.Snapshot: memsandbox.OpSnapshot,
	drivertest.ReadFile: memsandbox.OpReadFile, drivertest.Wait: memsandbox.OpWait,
}

func (f faults) Lose(_ *testing.T, c drivertest.Call) {
	f.drv.Inject(memsandbox.Fault{Op: ops[c], Code: driver.Unavailable, After: true})
}

func (f faults) Delay(_ *testing.T, c drivertest.Call, d time.Duration) {
	f.drv.Inject(memsandbox.Fault{Op: ops[c], Delay: d})
}

func (f faults) Mislead(_ *testing.T, c drivertest.Call) {
	f.drv.Inject(memsandbox.Fault{Op: ops[c], Code: driver.Gone})
}

// commands refer to the handlers below.
var commands = drivertest.Commands{
	Exit:     func(code int) []string { return []string{"exit", strconv.Itoa(code)} },
	Cat:      func() []string { return []string{"cat"} },
	Count:    func() []string { return []string{"count"} },
	Print:    func(o, e string) []string { return []string{"print", o, e} },
	Zeros:    func(n int) []string { return []string{"zeros", strconv.Itoa(n)} },
	Getenv:   func(name string) []string { return []string{"getenv", name} },
	Getwd:    func() []string { return []string{"getwd"} },
	Sleep:    func(d time.Duration) []string { return []string{"sleep", d.String()} },
	KillSelf: func() []string { return []string{"exit", "137"} },
	Mode:     func(path string) []string { return []string{"mode", path} },
	Remove:   func(path string) []string { return []string{"rm", path} },
	Put:      func(path, content string) []string { return []string{"put", path, content} },
	Tick:     func(a, b string) []string { return []string{"tick", a, b} },
}

func register(drv *memsandbox.Driver) {
	for name, h := range map[string]func(ctx context.Context, p *memsandbox.Proc) error{
		"cat": func(_ context.Context, p *memsandbox.Proc) error {
			_, err := io.Copy(p.Stdout, p.Stdin)
			return err
		},
		"count": func(_ context.Context, p *memsandbox.Proc) error {
			n, err := io.Copy(io.Discard, p.Stdin)
			_, _ = fmt.Fprint(p.Stdout, n)
			return err
		},
		"print": func(_ context.Context, p *memsandbox.Proc) error {
			_, _ = io.WriteString(p.Stderr, p.Args[2])
			_, err := io.WriteString(p.Stdout, p.Args[1])
			return err
		},
		"zeros": func(_ context.Context, p *memsandbox.Proc) error {
			n, _ := strconv.Atoi(p.Args[1])
			_, err := p.Stdout.Write(make([]byte, n))
			return err
		},
		"getenv": func(_ context.Context, p *memsandbox.Proc) error {
			_, err := io.WriteString(p.Stdout, p.Env[p.Args[1]])
			return err
		},
		"getwd": func(_ context.Context, p *memsandbox.Proc) error {
			_, err := io.WriteString(p.Stdout, p.Dir)
			return err
		},
		"sleep": func(ctx context.Context, p *memsandbox.Proc) error {
			d, err := time.ParseDuration(p.Args[1])
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return err
		},
		"mode": func(_ context.Context, p *memsandbox.Proc) error {
			_, err := fmt.Fprintf(p.Stdout, "%o", p.Files.Mode(p.Args[1]))
			return err
		},
		"rm": func(_ context.Context, p *memsandbox.Proc) error {
			p.Files.Remove(p.Args[1])
			return nil
		},
		"put": func(_ context.Context, p *memsandbox.Proc) error {
			return p.Files.Write(p.Args[1], []byte(p.Args[2]), 0o644)
		},
		"tick": func(ctx context.Context, p *memsandbox.Proc) error {
			for i := 1; ctx.Err() == nil; i++ {
				for _, name := range p.Args[1:] {
					if err := p.Files.Write(name, fmt.Append(nil, i, "\n"), 0o644); err != nil {
						return err
					}
				}
			}
			return nil
		},
	} {
		drv.Handle(name, func(ctx context.Context, p *memsandbox.Proc) int {
			if err := h(ctx, p); err != nil {
				return 1
			}
			return 0
		})
	}
	drv.Handle("exit", func(_ context.Context, p *memsandbox.Proc) int {
		code, _ := strconv.Atoi(p.Args[1])
		return code
	})
}
