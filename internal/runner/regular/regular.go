// Package regular reads files that hostile programs may replace while they are opened. A pipe in
// place of a file would block a reader forever, and a device could be endless.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is wrapped by errors about pipes, sockets, devices and directories.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is wrapped by errors about files that are larger than the reader accepts.
var ErrTooLarge = errors.New("too large")

// Open opens a regular file for reading. It follows links and never blocks.
func Open(path string) (*os.File, error) {
	return OpenAt(unix.AT_FDCWD, path, 0)
}

// OpenAt is Open for a path relative to a directory, with additional flags of open(2).
func OpenAt(dir int, path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|flags, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = ErrNotRegular
		}
		if err == nil {
			err = unix.SetNonblock(fd, false)
		}
		if err != nil {
			_ = unix.Close(fd) // nothing was written
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// Read reads a regular file of at most most bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
