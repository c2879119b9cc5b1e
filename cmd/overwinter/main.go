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

	p := program{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.Run(ctx))
}
