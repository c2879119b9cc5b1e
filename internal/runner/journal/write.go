package journal

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openFile is os.OpenFile of a regular file, without the five system calls with which os.OpenFile
// finds out that such a file cannot be polled.
func openFile(path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// writeAt is WriteAt of the log with a system call that is invisible to the Go scheduler. For a
// visible call, the scheduler notifies its monitor thread, which then wakes up several times. That
// costs more than writing a short line to the page cache. All other methods of the journal wait for
// such a write anyway.
func (j *Journal) writeAt(p []byte, offset int64) error {
	if len(p) > maxDirect || strconv.IntSize < 64 { // on such systems an offset takes two words
		_, err := j.log.WriteAt(p, offset)
		return err
	}
	conn, err := j.log.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	if err := conn.Control(func(fd uintptr) {
		for len(p) > 0 {
			n, _, e := unix.RawSyscall6(unix.SYS_PWRITE64, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(offset), 0, 0) // like package syscall
			switch {
			case e == unix.EINTR:
				continue
			case e != 0:
				errno = e
				return
			}
			p, offset = p[n:], offset+int64(n)
		}
	}); err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("pwrite", errno)
	}
	return nil
}

// maxDirect bounds such writes, because a long one may have to wait for the disk.
const maxDirect = 16 << 10

// Overwrite writes data over the beginning of a file, which it creates if necessary. It is for data
// of less than one block of a file: one system call writes it, and the death of the process does not
// divide it. Replacing the file by a new one would cost many times as much.
func Overwrite(path string, data []byte) error {
	const flags = os.O_WRONLY | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK // does not wait, even for a pipe
	f, err := openFile(path, flags)
	if err != nil && os.Remove(path) == nil { // it was no file
		f, err = openFile(path, flags)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}
