package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/localmodal/hostmount"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// confined reports whether init runs as a user without access to our directories. In that case the
// server creates all mounts for init and passes them to it.
func (r *Runtime) confined() bool { return r.isolation == Namespaces && r.ids.count > 0 }

// openMounts creates the mounts that init cannot create itself, and refers to them in root by the
// descriptors that init inherits.
func (r *Runtime) openMounts(root *wire.RootSpec) (files []*os.File, err error) {
	if !r.confined() {
		return nil, nil
	}
	defer func() {
		if err != nil {
			wire.CloseAll(files)
		}
	}()
	hand := func(m wire.Mount, idmap int) (fd int, isDir bool, err error) {
		t, err := hostmount.Clone(m, idmap)
		if err != nil {
			return 0, false, err
		}
		files = append(files, os.NewFile(uintptr(t.FD), m.Target))
		return wire.MountFD + len(files) - 1, t.IsDir, nil
	}
	if root.Box.FD, _, err = hand(wire.Mount{Source: root.Box.Path}, -1); err != nil {
		return files, err
	}
	if !root.Tree {
		if root.Layers.FD, _, err = hand(wire.Mount{Source: root.Layers.Path}, -1); err != nil {
			return files, err
		}
	}
	for i := range root.Overlays {
		m := &root.Overlays[i].Mount
		if m.FD, m.IsDir, err = hand(*m, r.idmapOf(*m)); err != nil {
			return files, fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	root.Mounts = append([]wire.Mount(nil), root.Mounts...)
	for i := range root.Mounts {
		m := &root.Mounts[i]
		if m.FD, m.IsDir, err = hand(*m, r.idmapOf(*m)); err != nil {
			return files, fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return files, nil
}

// idmapOf returns the user namespace to whose ids the owners of a mount's files are mapped, -1 for
// none. Without the mapping, programs of the machine's root would appear with the overflow user id
// as their owner.
func (r *Runtime) idmapOf(m wire.Mount) int {
	if r.idmap == nil || !m.ReadOnly || !r.mappable[m.Source] {
		return -1
	}
	return int(r.idmap.Fd())
}

// findMappable finds which of the programs' mounts can show other ids, which requires a kernel and
// a file system that support idmapped mounts.
func (r *Runtime) findMappable() error {
	if r.ids.count == 0 {
		return nil
	}
	var err error
	if r.idmap, err = r.openIDMap(); err != nil {
		return err
	}
	if err := r.findMounts(); err != nil {
		return err
	}
	r.mappable = map[string]bool{}
	for _, m := range r.hostMounts {
		t, err := hostmount.Clone(m, int(r.idmap.Fd()))
		if err != nil {
			continue // sandboxes see their files without a known owner
		}
		r.mappable[m.Source] = true
		wire.CloseAll([]*os.File{os.NewFile(uintptr(t.FD), m.Source)})
	}
	return nil
}

// openIDMap opens a user namespace with the ids of sandboxes. It lives as long as the descriptor;
// the process that creates it never executes an instruction.
func (r *Runtime) openIDMap() (*os.File, error) {
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // the process ends below
	cmd.Args = []string{wire.InitName}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL}
	r.ids.mapInto(cmd.SysProcAttr)
	if err := r.spawner.start(cmd); err != nil { // ptrace stops it before its first instruction
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "ns", "user"))
	if kill := cmd.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		err = errors.Join(err, kill)
	}
	_ = cmd.Wait() // "killed"
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", err)
	}
	return f, nil
}

// makeOwned creates a directory that belongs to the root user of sandboxes.
func (r *Runtime) makeOwned(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return r.own(path)
}

// own makes the root user of sandboxes the owner of a file, unless they are already.
func (r *Runtime) own(path string) error {
	if r.ids.count == 0 {
		return nil
	}
	return os.Lchown(path, int(r.ids.first), int(r.ids.first))
}

// Owner returns the owner for files that are created for sandboxes outside of a box, -1 for the
// current user.
func (r *Runtime) Owner() (uid, gid int) {
	if !r.confined() {
		return -1, -1
	}
	return int(r.ids.first), int(r.ids.first)
}

// Adopt changes the owners in a tree that sandboxes share, such as a volume, to those that the
// boxes of this runtime use. No box may be using it.
func (r *Runtime) Adopt(path string) error {
	to := r.ids.plain
	if r.isolation == Namespaces {
		to = r.ids.shifted
	}
	if err := shiftTree(path, to); err != nil {
		return fmt.Errorf("change owners of %s: %w", path, err)
	}
	return nil
}

// migrate changes the owners of layers, and of files of ended boxes, that a version without shifted
// ids created.
func (r *Runtime) migrate() error {
	if r.ids.count == 0 {
		return nil
	}
	if err := r.own(r.layerPath("")); err != nil {
		return err
	}
	layers, err := r.Layers()
	if err != nil {
		return err
	}
	for _, id := range layers {
		if err := shiftTree(r.layerPath(id), r.ids.shifted); err != nil {
			return fmt.Errorf("change owners of layer %s: %w", id, err)
		}
	}
	left, err := r.LeftOver()
	if err != nil {
		return err
	}
	for _, id := range left {
		if err := shiftTree(r.upperPath(id), r.ids.shifted); err != nil {
			return fmt.Errorf("change owners of sandbox %s: %w", id, err)
		}
	}
	return nil
}
