package box

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// whileOpen calls f while path is readable for its owner, which is the current user. The root of an
// ordinary user's sandbox can read files whose mode denies access to everyone; the server cannot.
// The mode is restored before any process of the sandbox runs.
func whileOpen(path string, st *unix.Stat_t, f func() error) error {
	needed := uint32(0o400)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		needed = 0o700
	case unix.S_IFREG:
	default:
		return f() // a link has no mode, and other kinds are never opened
	}
	if st.Mode&needed == needed || os.Geteuid() == 0 {
		return f()
	}
	if err := unix.Chmod(path, st.Mode&0o7777|needed); err != nil {
		return &fs.PathError{Op: "unlock", Path: path, Err: err}
	}
	err := f()
	if back := unix.Chmod(path, st.Mode&0o7777); back != nil {
		err = errors.Join(err, &fs.PathError{Op: "lock", Path: path, Err: back})
	}
	return err
}
