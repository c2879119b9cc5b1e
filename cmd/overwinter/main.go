// Command overwinter keeps coding-agent sessions alive. Its subcommands are the parts of the system
// (dev, api, worker, local-modal), its administration (migrate, version), and a client (session).
//
// This package is the only one that reads flags and the environment, and the only one that
// constructs the concrete types of the others.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/cli"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func main() {
	// A sandbox of the local Modal runs this program as its init.
	localmodal.ReexecMain()

	// The first signal ends the context. It also restores the default disposition, so that a second
	// one ends the process immediately.
	ctx := untilSignal(context.Background())

	p := program{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, protect: protectProcess}
	os.Exit(p.Run(ctx))
}

// untilSignal ends the context with the first interrupt, SIGTERM or hangup, with a cli.SignalError as its cause, so
// that everything stops gracefully. The shell and the kernel may both report that a terminal was closed: hangups after
// the first signal change nothing. Under nohup they are ignored.
func untilSignal(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	hangup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
	}
	go func() {
		select {
		case sig := <-asked:
			cancel(cli.SignalError{Signal: sig})
		case sig := <-hangup:
			cancel(cli.SignalError{Signal: sig})
		case <-ctx.Done():
		}
		signal.Stop(asked)
	}()
	return ctx
}
