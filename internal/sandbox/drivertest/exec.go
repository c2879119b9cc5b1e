package drivertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

func execStreams(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	p, err := sb.Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Print("out\nü", "err")})
	require.NoError(t, err)
	require.NoError(t, p.Stdin.Close())
	out, err := io.ReadAll(p.Stdout)
	require.NoError(t, err)
	require.Equal(t, "out\nü", string(out))
	errs, err := io.ReadAll(p.Stderr)
	require.NoError(t, err)
	require.Equal(t, "err", string(errs))
	for range 2 { // repeating Wait gives the same result
		code, err := p.Wait(b.ctx(t))
		require.NoError(t, err)
		require.Zero(t, code)
	}
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())

	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Exit(42)})
	require.NoError(t, err)
	require.Equal(t, 42, res.Code)
}

func execEnvironment(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Env = map[string]string{"OF_SANDBOX": "s", "OF_BOTH": "s"}
	sb := b.create(t, spec)
	env := map[string]string{"OF_EXEC": "two words", "OF_BOTH": "e"}
	for name, want := range map[string]string{"OF_SANDBOX": "s", "OF_EXEC": "two words", "OF_BOTH": "e", "OF_NOBODY": ""} {
		res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Getenv(name), Env: env})
		require.NoError(t, err)
		require.Equal(t, want, string(res.Stdout), name)
	}
	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Getwd(), Dir: "/tmp"})
	require.NoError(t, err)
	require.Equal(t, "/tmp", string(res.Stdout))
}

func execTalks(t *testing.T, b *bench) {
	p, err := b.sandbox(t).Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Cat()})
	require.NoError(t, err)
	lines := bufio.NewReader(p.Stdout)
	for i := range 5 { // each line is returned before the next is sent
		line := fmt.Sprintf("line %d\n", i)
		_, err := io.WriteString(p.Stdin, line)
		require.NoError(t, err)
		got, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, line, got)
	}
	require.NoError(t, p.Stdin.Close())
	_, err = lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	code, err := p.Wait(b.ctx(t))
	require.NoError(t, err)
	require.Zero(t, code)
}

func execBig(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	const size = 3<<20 + 17
	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Zeros(size), MaxOutput: size})
	require.NoError(t, err)
	require.False(t, res.Truncated)
	require.Len(t, res.Stdout, size)

	in := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	res, err = sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Cat(), Stdin: in, MaxOutput: len(in)})
	require.NoError(t, err)
	require.True(t, bytes.Equal(in, res.Stdout), "the output differs from the input")

	res, err = sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Count(), Stdin: in})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(len(in)), string(res.Stdout))
}

func runTruncates(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Zeros(100_000), MaxOutput: 1000})
	require.NoError(t, err)
	require.True(t, res.Truncated)
	require.Len(t, res.Stdout, 1000)
	require.Zero(t, res.Code)

	// A caller that stops waiting leaves no running process.
	ctx, cancel := context.WithTimeout(b.ctx(t), 100*time.Millisecond)
	defer cancel()
	_, err = sb.Run(ctx, sandbox.RunSpec{Argv: b.Commands.Sleep(time.Hour)})
	requireCode(t, sandbox.Timeout, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// Unread input is not an error.
	res, err = sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Exit(5), Stdin: make([]byte, 1<<20)})
	require.NoError(t, err)
	require.Equal(t, 5, res.Code)
}

func execSignal(t *testing.T, b *bench) {
	res, err := b.sandbox(t).Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.KillSelf()})
	require.NoError(t, err)
	require.Equal(t, 128+9, res.Code)
}

func execNotFound(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: []string{"no-such-program"}})
	if err != nil {
		requireCode(t, sandbox.Invalid, err)
	} else {
		require.Contains(t, []int{126, 127, 128}, res.Code)
	}
	b.run(t, sb, b.Commands.Exit(0)) // and the sandbox still works
}

func execTimeout(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	began := time.Now()
	_, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Sleep(time.Hour), Timeout: time.Second})
	requireCode(t, sandbox.Timeout, err)
	require.GreaterOrEqual(t, time.Since(began), 900*time.Millisecond)
	b.run(t, sb, b.Commands.Exit(0))
}

func execDies(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	p, err := sb.Exec(b.ctx(t), sandbox.ExecSpec{Argv: b.Commands.Cat()})
	require.NoError(t, err)
	_, err = io.WriteString(p.Stdin, "x")
	require.NoError(t, err)
	_, err = io.ReadFull(p.Stdout, make([]byte, 1))
	require.NoError(t, err)
	type read struct {
		n   int
		err error
	}
	reading := make(chan read, 1)
	go func() {
		n, err := p.Stdout.Read(make([]byte, 1)) // blocks: there is nothing to read
		reading <- read{n, err}
	}()

	require.NoError(t, b.second.Open(sb.ID()).Terminate(b.ctx(t)))
	code, err := p.Wait(b.ctx(t))
	if err == nil { // the provider may have stored how it was killed
		require.Equal(t, 137, code)
	} else {
		requireCode(t, sandbox.Gone, err)
	}
	select {
	case r := <-reading:
		require.Zero(t, r.n)
		require.Error(t, r.err)
	case <-b.ctx(t).Done():
		t.Fatal("a reader was left running")
	}
	require.NoError(t, p.Close())
}

func execDetaches(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	ctx, cancel := context.WithCancel(b.ctx(t))
	p, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: b.Commands.Cat()})
	require.NoError(t, err)
	cancel() // it applied only to the start
	_, err = io.WriteString(p.Stdin, "x")
	require.NoError(t, err)
	_, err = io.ReadFull(p.Stdout, make([]byte, 1))
	require.NoError(t, err)

	short, stop := context.WithTimeout(b.ctx(t), 50*time.Millisecond)
	defer stop()
	_, err = p.Wait(short)
	requireCode(t, sandbox.Timeout, err)

	require.NoError(t, p.Close())
	_, err = p.Wait(b.ctx(t))
	requireCode(t, sandbox.Unavailable, err)
	_, err = p.Stdout.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "a cut link must not look like the end of the output")
	_, err = io.WriteString(p.Stdin, "y")
	require.Error(t, err)
	require.NoError(t, p.Close())
	b.run(t, sb, b.Commands.Exit(0))
}

func execConcurrent(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	g, ctx := errgroup.WithContext(b.ctx(t))
	for i := range 20 {
		g.Go(func() error {
			want := fmt.Sprintf("number %d", i)
			res, err := sb.Run(ctx, sandbox.RunSpec{Argv: b.Commands.Cat(), Stdin: []byte(want)})
			if err == nil && string(res.Stdout) != want {
				err = fmt.Errorf("got %q, want %q", res.Stdout, want)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

func execInvalid(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	for name, spec := range map[string]sandbox.ExecSpec{
		"NoCommand":        {},
		"EmptyCommand":     {Argv: []string{""}},
		"TooManyArguments": {Argv: []string{"true", strings.Repeat("x", sandbox.MaxArgvBytes)}},
		"RelativeDir":      {Argv: []string{"true"}, Dir: "tmp"},
		"NegativeTimeout":  {Argv: []string{"true"}, Timeout: -1},
		"LongTimeout":      {Argv: []string{"true"}, Timeout: 25 * time.Hour},
		"BadVariable":      {Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}},
	} {
		_, err := sb.Exec(b.ctx(t), spec)
		require.Equal(t, sandbox.Invalid, sandbox.CodeOf(err), "%s: %v", name, err)
	}
}
