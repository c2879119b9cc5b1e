package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// leftoverGrace is how long a left-over process may take to end before it is killed.
const leftoverGrace = 5 * time.Second

// EndLeftovers ends the children of a killed supervisor with the same run directory, and returns
// when they have ended. The caller must know that no such supervisor is alive.
func EndLeftovers(ctx context.Context, runDir string, logger *slog.Logger) error {
	paths, err := filepath.Glob(filepath.Join(runDir, "*.json"))
	if err != nil {
		return fmt.Errorf("list process records: %w", err)
	}
	var group errgroup.Group
	for _, path := range paths {
		group.Go(func() error {
			r, err := readRecord(path)
			if err != nil {
				// The file is incomplete after a crash of the machine, which also ended the
				// process.
				logger.LogAttrs(ctx, slog.LevelWarn, "process record is unreadable", slog.Any("error", err))
				return os.Remove(path)
			}
			if r.running() {
				logger.LogAttrs(ctx, slog.LevelInfo, "ending a process of an earlier run",
					slog.String("executable", r.Executable), slog.Int("pid", r.PID))
			}
			if err := r.end(ctx); err != nil {
				return err
			}
			return os.Remove(path)
		})
	}
	return group.Wait()
}

// end stops the recorded process if it is there, and waits for it.
func (r record) end(ctx context.Context) error {
	return EndProcess(ctx, r.PID, syscall.Signal(r.StopSignal), r.exists)
}

// EndProcess asks a process that is not a child of this one to end, kills it with its group if it
// does not end within 5 s, and returns when it has ended. It checks that it is the right process
// only once the process id can no longer be reused.
func EndProcess(ctx context.Context, pid int, ask syscall.Signal, isRight func() bool) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(handle) }()
	if !isRight() {
		return nil
	}
	if err := unix.PidfdSendSignal(handle, ask, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	if gone, err := waitGone(ctx, handle, leftoverGrace); gone || err != nil {
		return err
	}
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		_ = unix.Kill(-pid, unix.SIGKILL) // the process itself follows below
	}
	if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	gone, err := waitGone(ctx, handle, leftoverGrace)
	if err == nil && !gone {
		err = fmt.Errorf("kill process %d: still there after %s", pid, leftoverGrace)
	}
	return err
}

// waitGone waits for the end of the process of a pidfd.
func waitGone(ctx context.Context, handle int, timeout time.Duration) (bool, error) {
	const slice = 50 * time.Millisecond // maximum delay until the end of ctx is noticed
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, int(slice.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("wait for process: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}
