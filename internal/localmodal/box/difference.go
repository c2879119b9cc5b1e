package box

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// copyChanges copies the differences between src and the record to dst, in the form of an overlay's
// upper directory: every layer has this form.
func (c *copier) copyChanges(ctx context.Context, start *startRecord, src, dst string) error {
	c.dst = dst
	d := &difference{copier: c, start: start, made: map[string]bool{}}
	root, err := openRoot(src)
	if err != nil {
		return err
	}
	defer root.close()
	if err := d.make("."); err != nil { // a layer without changes is also a directory
		return err
	}
	return d.dir(ctx, ".", root)
}

// difference finds the changes.
type difference struct {
	copier *copier
	start  *startRecord
	made   map[string]bool // created directories of the layer
}

// make creates a directory of the layer, and its parents.
func (d *difference) make(rel string) error {
	if d.made[rel] {
		return nil
	}
	if rel != "." {
		if err := d.make(filepath.Dir(rel)); err != nil {
			return err
		}
	}
	d.made[rel] = true
	return os.Mkdir(filepath.Join(d.copier.dst, rel), 0o700)
}

func (d *difference) unchanged(rel string, st *unix.Stat_t) bool {
	print, known := d.start.files[rel]
	return known && print == fingerprintOf(st)
}

func (d *difference) dir(ctx context.Context, rel string, src *source) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !d.unchanged(rel, &src.st) {
		if err := d.make(rel); err != nil {
			return err
		}
	}
	if err := d.entries(ctx, rel, src); err != nil {
		return err
	}
	if !d.made[rel] {
		return nil
	}
	return d.copier.attributes(src.path, filepath.Join(d.copier.dst, rel), &src.st)
}

func (d *difference) entries(ctx context.Context, rel string, src *source) error {
	present := map[string]bool{}
	err := src.eachEntry(func(name string, entry *source) error {
		present[name] = true
		return d.entry(ctx, rel, name, entry)
	})
	if err != nil {
		return err
	}
	for _, name := range d.start.names[rel] {
		if present[name] {
			continue
		}
		if err := d.make(rel); err != nil {
			return err
		}
		if err := makeWhiteout(filepath.Join(d.copier.dst, rel, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d *difference) entry(ctx context.Context, rel, name string, src *source) error {
	path := filepath.Join(rel, name)
	if src.isDir() {
		return d.dir(ctx, path, src)
	}
	if d.unchanged(path, &src.st) {
		return nil
	}
	if err := d.make(rel); err != nil {
		return err
	}
	return d.copier.entry(ctx, path, src)
}

// makeWhiteout hides the entry with that name in lower layers.
func makeWhiteout(path string) error {
	if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
		return &fs.PathError{Op: "mknod", Path: path, Err: err}
	}
	return nil
}

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// probeWhiteouts checks whether the file system of path, which must not exist, can store layers.
func probeWhiteouts(path string) error {
	if err := makeWhiteout(path); err != nil {
		return fmt.Errorf("the file system of the data directory cannot mark deleted files: %w", err)
	}
	return os.Remove(path)
}
