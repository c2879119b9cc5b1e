package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnlySignalIsInterrupt(t *testing.T) {
	t.Parallel()
	require.True(t, isInterrupt(fmt.Errorf("main: %w", SignalError{os.Interrupt})))
	require.False(t, isInterrupt(SignalError{syscall.SIGTERM}))
	require.False(t, isInterrupt(errors.New(SignalError{os.Interrupt}.Error())))
	require.False(t, isInterrupt(nil))
}

func TestOtherCausesEndHeldContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	held, _, release := holdInterrupts(ctx)
	defer release()
	cancel(SignalError{syscall.SIGTERM})
	select {
	case <-held.Done():
		require.Equal(t, SignalError{syscall.SIGTERM}, context.Cause(held))
	case <-time.After(time.Minute):
		t.Fatal("the context did not end")
	}
}
