package box

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// packageData is a directory of the host that a sandbox with changeable programs sees in addition
// to the programs: dpkg's record of the packages installed below /usr.
const packageData = "/var/lib/dpkg"

// changeable reports whether sandboxes see a mount of the host through a separate, writable
// overlay. That requires overlays and idmapped mounts: otherwise a file of the host's root has an
// unmapped owner in a sandbox, and cannot be replaced there. A directory that contains other mounts
// cannot be the lower layer of such an overlay.
func (r *Runtime) changeable(m wire.Mount) bool {
	return r.confined() && !r.copies && r.mappable[m.Source] && !r.hasMounts[m.Source]
}

// Installs reports whether sandboxes can install system packages.
func (r *Runtime) Installs() bool { return r.changeable(wire.Mount{Source: "/usr"}) }

// findMounts finds the directories of the host that contain other mounts.
func (r *Runtime) findMounts() error {
	r.hasMounts = map[string]bool{}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		for _, m := range r.hostMounts {
			if strings.HasPrefix(fields[4], m.Source+"/") {
				r.hasMounts[m.Source] = true
			}
		}
	}
	return lines.Err()
}

// changesName is the name of the directory with a box's changes to a directory of the host.
func changesName(target string) string {
	return strings.ReplaceAll(strings.TrimPrefix(target, "/"), "/", "-")
}

func (r *Runtime) changesPath(id, target string) string {
	return filepath.Join(r.boxPath(id), "changes", changesName(target), "upper")
}

// splitMounts returns the host's mounts that a box sees unchanged, and overlays of the others.
func (r *Runtime) splitMounts(layers []string) (mounts []wire.Mount, overlays []wire.Overlay, err error) {
	for _, m := range r.hostMounts {
		switch {
		case r.changeable(m):
			lower, err := r.layersWith(layers, m.Target)
			if err != nil {
				return nil, nil, err
			}
			overlays = append(overlays, wire.Overlay{Mount: m, Lower: lower, Name: changesName(m.Target)})
		case m.Source != packageData: // useless if no packages can be installed
			mounts = append(mounts, m)
		}
	}
	return mounts, overlays, nil
}

// layersWith returns that directory in the layers that contain it. A sandbox may have replaced
// parent directories by symbolic links, which are not followed.
func (r *Runtime) layersWith(layers []string, target string) ([]string, error) {
	rel := strings.TrimPrefix(target, "/")
	root, err := unix.Open(r.layerPath(""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: r.layerPath(""), Err: err}
	}
	defer unix.Close(root)
	var found []string
	for _, layer := range layers {
		if layer == BaseLayer {
			continue
		}
		name := filepath.Join(layer, rel)
		fd, err := unix.Openat2(root, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		switch {
		case err == nil:
			_ = unix.Close(fd)
			found = append(found, name)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP):
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return found, nil
}

// makeChanges creates the directories of a box into which its overlays write.
func (b *Box) makeChanges(overlays []wire.Overlay) error {
	if len(overlays) == 0 {
		return nil
	}
	dir := filepath.Join(b.rt.boxPath(b.id), "changes")
	if err := b.rt.makeOwned(dir, 0o755); err != nil {
		return err
	}
	for _, o := range overlays {
		for _, name := range []string{o.Name, filepath.Join(o.Name, "upper"), filepath.Join(o.Name, "work")} {
			if err := b.rt.makeOwned(filepath.Join(dir, name), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// changed lists the directories of the host in which a box has changed files.
func (r *Runtime) changed(id string) ([]string, error) {
	var targets []string
	for _, target := range append([]string{packageData}, programs...) {
		dir, err := os.Open(r.changesPath(id, target))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names, _ := dir.Readdirnames(1)
		_ = dir.Close()
		if len(names) > 0 {
			targets = append(targets, target)
		}
	}
	return targets, nil
}

// makeRoom returns the place for the changes of a host directory in an unfinished layer; false if
// the sandbox has put something else in its path.
func (r *Runtime) makeRoom(layer, target string) (string, bool, error) {
	path := layer
	for _, name := range strings.Split(strings.TrimPrefix(filepath.Dir(target), "/"), "/") {
		if name == "" {
			continue
		}
		path = filepath.Join(path, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err := r.makeOwned(path, 0o755); err != nil { // as in the base
				return "", false, err
			}
			continue
		}
		if err != nil {
			return "", false, err
		}
		if !info.IsDir() {
			return "", false, nil
		}
	}
	path = filepath.Join(path, filepath.Base(target))
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // may be an empty mount point
		return "", false, nil // created by the sandbox
	}
	return path, true, nil
}

// copyHostChanges adds a box's changes of host directories to an unfinished layer.
func (r *Runtime) copyHostChanges(ctx context.Context, c *copier, id, layer string) error {
	targets, err := r.changed(id)
	if err != nil {
		return err
	}
	for _, target := range targets {
		_, ok, err := r.makeRoom(layer, target)
		if err != nil {
			return err
		}
		if !ok {
			r.logger.WarnContext(ctx, "changes of programs cannot be saved: the sandbox has replaced their directory", slog.String("sandbox_id", id), slog.String("directory", target))
			continue
		}
		root, err := openRoot(r.changesPath(id, target))
		if err != nil {
			return err
		}
		err = c.dir(ctx, strings.TrimPrefix(target, "/"), root)
		root.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// moveHostChanges is copyHostChanges for a dead box whose files become the layer. It may be
// repeated.
func (r *Runtime) moveHostChanges(id, layer string) error {
	targets, err := r.changed(id)
	if err != nil {
		return err
	}
	for _, target := range targets {
		path, ok, err := r.makeRoom(layer, target)
		if err != nil {
			return err
		}
		if !ok {
			r.logger.Warn("changes of programs cannot be saved: the sandbox has replaced their directory", slog.String("sandbox_id", id), slog.String("directory", target))
			continue
		}
		if err := os.Rename(r.changesPath(id, target), path); err != nil {
			return err
		}
	}
	return nil
}
