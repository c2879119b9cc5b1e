// Command overwinter-temporal is a whole Temporal cluster in one process, for one machine: server,
// web UI and an SQLite file. `overwinter dev` runs it with the other parts of the system; it can
// also replace the temporal command line tool for `temporal server start-dev`, which
// testsuite.StartDevServer of the Temporal SDK runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"go.temporal.io/server/common/log"

	"github.com/overwinter-dev/overwinter/devserver/internal/temporald"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "overwinter-temporal: %v\n", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is an error in the arguments, found before anything was started.
type usageError struct{ error }

// run is the program: it serves until a signal or the end of stdin stops it.
func run(args []string, stdin io.Reader, stdout io.Writer) error {
	var flags commands
	parser, err := kong.New(&flags,
		kong.Name("overwinter-temporal"),
		kong.Description("A whole Temporal cluster in one process: server, web UI and an SQLite file."),
		kong.Writers(stdout, os.Stderr),
	)
	if err != nil {
		return fmt.Errorf("define flags: %w", err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return usageError{err}
	}
	options := flags.Serve
	if command.Command() == "server start-dev" {
		options = flags.Server.StartDev
	}
	config, err := options.config()
	if err != nil {
		return usageError{err}
	}
	if err := config.Validate(); err != nil {
		return usageError{err}
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if options.ExitWithStdin {
		if err := endWithParent(); err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // any end of stdin, clean or not, is the signal
			cancel()
		}()
	}
	return serve(ctx, config, options.logger(), stdout, cancel)
}

// serve runs the server until ctx ends. A later signal ends the process at once.
func serve(
	ctx context.Context, config temporald.Config, logger log.Logger, stdout io.Writer, restoreSignals func(),
) error {
	server, err := temporald.Start(ctx, config, logger)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped before it was ready
	}
	if err != nil {
		return err
	}
	if err := announce(stdout, server); err != nil {
		return errors.Join(err, stop(ctx, server))
	}

	<-ctx.Done()
	restoreSignals()
	return stop(ctx, server)
}

// announce writes the addresses of the server and that it is ready.
func announce(stdout io.Writer, server *temporald.Server) error {
	text := "temporal " + server.Address() + "\n"
	if ui := server.UIAddress(); ui != "" {
		text += "ui " + ui + "\n"
	}
	if _, err := io.WriteString(stdout, text+"ready\n"); err != nil {
		return fmt.Errorf("announce the server: %w", err)
	}
	return nil
}

// stop stops the server even if ctx has ended.
func stop(ctx context.Context, server *temporald.Server) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), temporald.StopTimeout,
		fmt.Errorf("not ended within %s", temporald.StopTimeout))
	defer cancel()
	return server.Stop(ctx)
}
