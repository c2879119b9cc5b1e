package boxinit

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// archive writes the tree below dir to files[0] as a tar stream: directories,
// regular files and symbolic links with owners, modes and times to the nanosecond.
func archive(dir string, oneFilesystem bool, files []*os.File) error {
	if len(files) != 1 {
		return fmt.Errorf("archive came with %d files, not 1", len(files))
	}
	root, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !root.IsDir() {
		return &fs.PathError{Op: "archive", Path: dir, Err: syscall.ENOTDIR}
	}
	w := tar.NewWriter(files[0])
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if oneFilesystem && entry.IsDir() && device(info) != device(root) {
			return filepath.SkipDir
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return archiveEntry(w, name, path, info)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("archive %s: %w", dir, err)
	}
	return nil
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Dev
	}
	return 0
}

func archiveEntry(w *tar.Writer, name, path string, info fs.FileInfo) error {
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		link = target
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil // sockets, pipes and devices have no meaning elsewhere
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(w, f, header.Size)
	return errors.Join(err, f.Close())
}

// extract unpacks a tar stream below dir. The os.Root prevents a crafted archive from writing
// outside.
func extract(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	var dirs []*tar.Header // their times and modes are set last
	tr := tar.NewReader(r)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = extractEntry(root, header, tr)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("extract: %w", err), root.Close())
		}
		if header.Typeflag == tar.TypeDir {
			dirs = append(dirs, header)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		h := dirs[i]
		if err := errors.Join(root.Chmod(h.Name, h.FileInfo().Mode()), root.Chtimes(h.Name, h.ModTime, h.ModTime)); err != nil {
			return errors.Join(fmt.Errorf("extract %s: %w", h.Name, err), root.Close())
		}
	}
	return root.Close()
}

func extractEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(h.Name, 0o755); err != nil {
			return err
		}
		return own(root, h)
	case tar.TypeSymlink:
		if err := root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
		return own(root, h)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if err := own(root, h); err != nil {
			return err
		}
		return errors.Join(root.Chmod(h.Name, h.FileInfo().Mode()), root.Chtimes(h.Name, h.ModTime, h.ModTime))
	}
	return nil
}

// own sets the owner of the entry if the user namespace contains that id. An ordinary user's
// namespace contains only one.
func own(root *os.Root, h *tar.Header) error {
	err := root.Lchown(h.Name, h.Uid, h.Gid)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}
