package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// SignalError is the cause of a context that a signal has ended.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return e.Signal.String() + " signal received" }

// holdInterrupts returns a context that continues when an interrupt (Ctrl-C) ends ctx. Each
// interrupt is sent to the channel instead. SIGTERM, SIGHUP and any other end of ctx end it. The
// caller must call release.
func holdInterrupts(ctx context.Context) (held context.Context, interrupts <-chan struct{}, release func()) {
	presses := make(chan os.Signal, 1)
	others := make(chan os.Signal, 1)
	signal.Notify(presses, os.Interrupt)
	signal.Notify(others, syscall.SIGTERM, syscall.SIGHUP)
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !isInterrupt(cause) {
			cancel(cause)
		}
	})
	out := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-presses:
				select {
				case out <- struct{}{}:
				case <-held.Done():
					return
				}
			case sig := <-others:
				cancel(SignalError{sig})
			case <-held.Done():
				return
			}
		}
	}()
	return held, out, func() {
		stop()
		signal.Stop(presses)
		signal.Stop(others)
		cancel(context.Canceled)
		<-done
	}
}

// isInterrupt reports whether a cause is an interrupt.
func isInterrupt(cause error) bool {
	by, ok := errors.AsType[SignalError](cause)
	return ok && by.Signal == os.Interrupt
}
