package temporald

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fileLock is an exclusive lock between processes. SQLite's own locks allow several processes to
// use one file, and two servers that own the same shard would corrupt each other's state.
type fileLock struct{ file *os.File }

// lockFile acquires the lock at path, or returns an error that names its holder. It does not wait.
func lockFile(path string) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = file.Close() }() // read only
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		holder, readErr := os.ReadFile(path)
		if pid := strings.TrimSpace(string(holder)); readErr == nil && pid != "" {
			return nil, fmt.Errorf("is in use by process %s", pid)
		}
		return nil, errors.New("is in use by another process")
	}
	lock := &fileLock{file: file}
	if err := lock.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock %s: %w", path, err), lock.release())
	}
	return lock, nil
}

// sign writes the holder's process id into the file, for the error message of a second process.
func (l *fileLock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// release releases the lock. The file stays, because after its removal two processes could lock two
// files of the same name.
func (l *fileLock) release() error { return l.file.Close() }
