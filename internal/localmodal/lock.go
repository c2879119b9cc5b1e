package localmodal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/privatedir"
)

const (
	lockTimeout = time.Second
	lockPoll    = 10 * time.Millisecond
)

// lockDir makes the data directory private and locks it for this process. unlockDir or the end of
// the process releases the lock.
func lockDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, errors.New("the data directory is not set")
	}
	if err := privatedir.Make(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := takeLock(f, dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeLock waits a moment if the lock is held: a process that a killed server has just forked holds
// it until it notices the server's end.
func takeLock(f *os.File, dir string) error {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockPoll) { //nolint:forbidigo // flock has no deadline
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock data directory: %w", err)
		case time.Now().After(deadline):
			return fmt.Errorf("data directory %s is in use by another local Modal", dir)
		}
	}
}

// unlockDir releases the directory immediately, even if other processes have inherited the file.
func unlockDir(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
