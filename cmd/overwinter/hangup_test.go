package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// restoreHangups restores the default handling of hangups, even if the parent process ignores them.
// Only Notify ends the ignored state of a signal.
func restoreHangups() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	signal.Reset(syscall.SIGHUP)
}

// TestHangupEndsGracefully checks that closing the terminal ends the program gracefully, even with
// several hangups.
//
//nolint:paralleltest // signals are the whole process's
func TestHangupEndsGracefully(t *testing.T) {
	restoreHangups()
	t.Cleanup(restoreHangups)
	ctx := untilSignal(t.Context())
	require.NoError(t, ctx.Err())

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	select {
	case <-ctx.Done():
	case <-time.After(eventuallyTimeout):
		t.Fatal("the hangup was not noticed")
	}
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP), "again, by the kernel after the shell")
}

// TestHangupIsIgnoredUnderNohup checks that a program started with nohup keeps running.
//
//nolint:paralleltest // as above
func TestHangupIsIgnoredUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	t.Cleanup(restoreHangups)
	ctx := untilSignal(context.Background())

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	require.True(t, signal.Ignored(syscall.SIGHUP))
	require.NoError(t, ctx.Err())
}
