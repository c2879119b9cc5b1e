package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/cli"
)

// timeoutFlag bounds how long a command waits.
type timeoutFlag struct {
	Timeout time.Duration `placeholder:"DURATION" help:"Stop waiting after this time, such as 90s, and exit with code 3. The session continues. Default: no limit."`
}

// waitFlags make a command wait for its effect.
type waitFlags struct {
	Wait bool `help:"Wait for the command's effect; fail if it has none."`
	timeoutFlag
}

// Validate checks what kong cannot.
func (f waitFlags) Validate() error { return needsWait(f.Timeout, f.Wait) }

// needsWait refuses --timeout without --wait.
func needsWait(timeout time.Duration, wait bool) error {
	switch {
	case timeout < 0:
		return usageError{"--timeout must not be negative"}
	case timeout > 0 && !wait:
		return usageError{"--timeout needs --wait"}
	}
	return nil
}

// timeoutError ends the program with exitTimeout.
type timeoutError struct {
	after     time.Duration
	continues string
}

func (e timeoutError) Error() string {
	return fmt.Sprintf("stopped waiting after %s; %s continues", e.after, e.continues)
}

// during calls wait with a context that ends after the timeout. The error after a timeout names the
// operation that continues.
func (f timeoutFlag) during(ctx context.Context, continues string, wait func(context.Context) error) error {
	timeout := timeoutError{after: f.Timeout, continues: continues}
	bounded := ctx
	if f.Timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, f.Timeout, timeout)
		defer cancel()
	}
	err := wait(bounded)
	if err == nil || bounded.Err() == nil {
		return err
	}
	cause := context.Cause(bounded)
	if errors.Is(cause, timeout) {
		return timeout
	}
	if by, ok := errors.AsType[cli.SignalError](cause); ok {
		return fmt.Errorf("stopped waiting: %w; %s continues", by, continues)
	}
	return err
}
