package box

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// source is a file of a sandbox, opened without following links. The descriptor refers to the same
// file even if its name changes.
type source struct {
	fd   int    // opened with O_PATH; negative for a file of a layer, which is immutable
	path string // path of the file, possibly through the descriptor
	name string // name for errors
	st   unix.Stat_t
}

// openRoot opens the root of a tree. The server controls its name and the parents.
func openRoot(path string) (*source, error) { return openSource(unix.AT_FDCWD, path, path) }

func openSource(dir int, name, path string) (*source, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s := &source{fd: fd, path: "/proc/self/fd/" + strconv.Itoa(fd), name: path}
	if err := unix.Fstat(fd, &s.st); err != nil {
		s.close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return s, nil
}

// layerSource returns a file of a layer by its path.
func layerSource(path string) (*source, error) {
	s := &source{fd: -1, path: path, name: path}
	if err := unix.Lstat(path, &s.st); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return s, nil
}

func (s *source) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // nothing was written through it
	}
}

func (s *source) isDir() bool { return s.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// readlink returns the target of a symbolic link.
func (s *source) readlink() (string, error) {
	if s.fd < 0 {
		return os.Readlink(s.path)
	}
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(s.fd, "", buf)
		if err != nil {
			return "", &fs.PathError{Op: "readlink", Path: s.name, Err: err}
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// eachEntry calls f with the entries of the directory. It makes the directory readable and
// searchable meanwhile, regardless of its mode.
func (s *source) eachEntry(f func(name string, entry *source) error) error {
	return whileOpen(s.path, &s.st, func() error {
		fd, err := unix.Open(s.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: s.name, Err: err}
		}
		dir := os.NewFile(uintptr(fd), s.name)
		return errors.Join(eachName(dir, s.name, f), dir.Close())
	})
}

func eachName(dir *os.File, path string, f func(name string, entry *source) error) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		entry, err := openSource(int(dir.Fd()), name, path+"/"+name)
		if err != nil {
			return err
		}
		err = f(name, entry)
		entry.close()
		if err != nil {
			return err
		}
	}
	return nil
}
