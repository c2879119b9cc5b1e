// Command overwinter keeps coding-agent sessions alive. Its subcommands are the parts of the
// system (dev, api, worker, local-modal), what looks after them (migrate, version), and a client
// (session).
//
// This package is the only one that reads flags and the environment, and the only one that builds
// concrete things out of the others.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func main() {
	// A sandbox of the local Modal runs this very program as its init.
	localmodal.ReexecMain()

	// The first signal asks, so it only ends the context; the second one finds the default
	// disposition again and ends the process, whatever it is doing.
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	ctx = untilHangup(ctx)

	p := program{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, protect: protectProcess}
	os.Exit(p.Run(ctx))
}

// untilHangup ends the context when the terminal is closed, so that everything stops in order then
// too. A shell and the kernel may both tell of it: hangups after the first change nothing. Under
// nohup there are none.
func untilHangup(ctx context.Context) context.Context {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		defer cancel()
		select {
		case <-hangup:
		case <-ctx.Done():
		}
	}()
	return ctx
}
