package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxLayers bounds the layers of a root, including the base. The kernel's limit is higher (500, and
// a page of mount options), but lookups in deep stacks are slow.
const MaxLayers = 32

// Merge creates one layer named id that replaces layers (top first, without the base). Files are
// linked, not copied.
func (r *Runtime) Merge(ctx context.Context, layers []string, id string) error {
	building := r.buildPlace()
	roots := make([]string, len(layers))
	for i, l := range layers {
		roots[i] = r.layerPath(l)
	}
	m := &merger{copier: newCopier(nil, nil, same)}
	defer r.lockLayers()()
	err := m.dir(ctx, roots, building, false)
	if err == nil {
		err = r.publish(building, id)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("merge %d layers: %w", len(layers), err), r.trash.discard(building))
	}
	return nil
}

// copyLayers copies to dst the files that an overlay of layers (top first) would show.
func (r *Runtime) copyLayers(ctx context.Context, layers []string, dst string) error {
	roots := make([]string, len(layers))
	for i, l := range layers {
		roots[i] = r.layerPath(l)
	}
	m := &merger{copier: newCopier(nil, nil, r.treeOwner()), flat: true, base: r.layerPath(BaseLayer) + "/"}
	m.copier.flat = true
	defer r.lockLayers()()
	if err := m.dir(ctx, roots, dst, false); err != nil {
		return fmt.Errorf("copy %d layers: %w", len(layers), err)
	}
	return nil
}

// lockLayers prevents concurrent reads of layers if reading may have to change modes temporarily.
// It returns the unlock function.
func (r *Runtime) lockLayers() func() {
	if os.Geteuid() == 0 {
		return func() {}
	}
	r.unlocking.Lock()
	return r.unlocking.Unlock
}

// merger reads layers with the semantics of overlayfs.
type merger struct {
	copier *copier
	flat   bool   // copy files, and omit entries that only overlays need
	base   string // the base layer, whose symbolic links flat copies share
}

// dir merges directories, top first, into dst. closed means that an entry ended the search for
// further ones, so that content below the merged layer must stay hidden.
func (m *merger) dir(ctx context.Context, dirs []string, dst string, closed bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var top unix.Stat_t
	if err := unix.Lstat(dirs[0], &top); err != nil {
		return &fs.PathError{Op: "lstat", Path: dirs[0], Err: err}
	}
	if err := os.Mkdir(dst, 0o700); err != nil {
		return err
	}
	if err := m.entries(ctx, dirs, dst); err != nil {
		return err
	}
	if closed && !m.flat {
		if err := unix.Lsetxattr(dst, opaqueAttr, []byte("y"), 0); err != nil {
			return fmt.Errorf("mark %s opaque: %w", dst, err)
		}
	}
	return m.copier.attributes(dirs[0], dst, &top)
}

// entries merges the entries of dirs and keeps all dirs open: an entry may have parts in several of
// them.
func (m *merger) entries(ctx context.Context, dirs []string, dst string) error {
	seen := map[string]bool{}
	merge := func() error {
		for i, dir := range dirs {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if seen[e.Name()] {
					continue
				}
				seen[e.Name()] = true
				if err := m.entry(ctx, dirs[i:], dst, e); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, dir := range dirs {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: dir, Err: err}
		}
		inner := merge
		merge = func() error { return whileOpen(dir, &st, inner) }
	}
	return merge()
}

// entry merges the topmost entry with that name into dst. dirs[0] contains it.
func (m *merger) entry(ctx context.Context, dirs []string, dst string, e fs.DirEntry) error {
	target := filepath.Join(dst, e.Name())
	first := filepath.Join(dirs[0], e.Name())
	if !e.IsDir() {
		return m.leaf(first, target)
	}
	parts, closed := []string{first}, isOpaque(first)
	for _, dir := range dirs[1:] {
		if closed {
			break
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() { // a file or a whiteout hides lower entries
			closed = true
			break
		}
		parts, closed = append(parts, path), isOpaque(path)
	}
	return m.dir(ctx, parts, target, closed)
}

func (m *merger) leaf(src, dst string) error {
	if !m.flat {
		return os.Link(src, dst) // including whiteouts
	}
	file, err := layerSource(src)
	if err != nil {
		return err
	}
	st := &file.st
	if isWhiteout(st) {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && strings.HasPrefix(src, m.base) {
		// The base has hundreds of links to certificates, and creating one takes much longer than
		// hard-linking it.
		if err := os.Link(src, dst); !errors.Is(err, unix.EMLINK) {
			return err
		}
	}
	return m.copier.leaf(file, dst, "")
}

func isOpaque(dir string) bool {
	value, err := getAttribute(dir, opaqueAttr)
	return err == nil && string(value) == "y"
}
