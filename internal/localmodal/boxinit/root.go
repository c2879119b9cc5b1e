package boxinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/hostmount"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Bound from the host's /dev: a user namespace cannot create device nodes.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

var (
	// Files below /proc that affect the whole machine are read-only.
	masked = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"}
	// Files with information about the machine's user are shown as empty.
	hidden = []string{"/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/kcore"}
)

// tree is a mount that has been detached on the host and not yet attached in the sandbox.
type tree struct {
	hostmount.Tree
	target string
}

// buildRoot mounts the overlay, or the tree, and makes it our root. All other mounts are made after
// the switch, so that a symbolic link in an image cannot redirect a mount point to the host.
func buildRoot(spec wire.RootSpec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mounts := spec.Mounts
	if spec.Level != wire.LevelNamespaces { // we see the machine's processes
		mounts = append([]wire.Mount{{Source: "/proc", Target: "/proc"}}, mounts...)
	}
	trees, err := openTrees(mounts)
	if err != nil {
		return err
	}
	root, overlays, err := mountRoot(spec)
	if err != nil {
		return err
	}
	trees = append(overlays, trees...)
	old, err := unix.Open("/", unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open old root: %w", err)
	}
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	// The kernel only allows us to mount /proc while a complete one is visible: that of the old
	// root.
	if err := mountSystem(spec.Level == wire.LevelNamespaces, spec.Memory); err != nil {
		return err
	}
	if spec.Level == wire.LevelNamespaces {
		if err := limitObjects(); err != nil {
			return err
		}
		if err := limitSystemV(spec.Memory); err != nil {
			return err
		}
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return err
		}
	}
	if err := errors.Join(mask(), hide()); err != nil {
		return err
	}
	return dropOldRoot(old)
}

// staging is where the host's mounts are attached until the root is complete. The directory exists
// on every machine and is no longer needed: the devices have already been picked up.
const staging = "/dev"

// openPlaces returns names of the directories of layers and of the sandbox that work in this
// process: the root of a user namespace cannot traverse the host's directories.
func openPlaces(spec wire.RootSpec) (layers, box string, err error) {
	if spec.Box.FD == 0 {
		return spec.Layers.Path, spec.Box.Path, nil
	}
	if err := unix.Mount("tmpfs", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700,size=1m,nr_inodes=4k"); err != nil {
		return "", "", fmt.Errorf("mount stage: %w", err)
	}
	places := map[string]wire.Place{"layers": spec.Layers, "box": spec.Box}
	for name, place := range places {
		if place.FD == 0 {
			continue
		}
		at := filepath.Join(staging, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			return "", "", fmt.Errorf("make stage: %w", err)
		}
		if err := (tree{Tree: hostmount.Tree{FD: place.FD, IsDir: true}, target: at}).attach(); err != nil {
			return "", "", err
		}
	}
	return filepath.Join(staging, "layers"), filepath.Join(staging, "box"), nil
}

// mountRoot returns the current mount point of the root, and the overlays to attach in it.
func mountRoot(spec wire.RootSpec) (string, []tree, error) {
	layers, box, err := openPlaces(spec)
	if err != nil {
		return "", nil, err
	}
	root, err := mountRootIn(spec, layers, box)
	if err != nil {
		return "", nil, err
	}
	overlays := make([]tree, 0, len(spec.Overlays))
	for _, o := range spec.Overlays {
		t, err := mountOverlay(o, box)
		if err != nil {
			return "", nil, fmt.Errorf("mount %s: %w", o.Target, err)
		}
		overlays = append(overlays, t)
	}
	return root, overlays, nil
}

// overlayOptions are those of all overlays. With an index, the kernel would refuse the layer of an
// exit image as long as the mount of the ended sandbox is held (box.HoldMounts).
const overlayOptions = "userxattr,index=off"

// mountOverlay mounts an overlay over a directory of the host and detaches it. The working
// directory is the directory of layers.
func mountOverlay(o wire.Overlay, box string) (tree, error) {
	lower, at := filepath.Join(staging, "host-"+o.Name), filepath.Join(staging, "overlay-"+o.Name)
	if err := os.Mkdir(at, 0o700); err != nil {
		return tree{}, err
	}
	if err := (tree{Tree: hostmount.Tree{FD: o.FD, IsDir: true}, target: lower}).attach(); err != nil {
		return tree{}, err
	}
	changes := filepath.Join(box, "changes", o.Name)
	options := overlayOptions + ",lowerdir=" + strings.Join(append(slices.Clone(o.Lower), lower), ":") +
		",upperdir=" + filepath.Join(changes, "upper") + ",workdir=" + filepath.Join(changes, "work")
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return tree{}, fmt.Errorf("overlay of %d layers: %w", len(o.Lower), err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return tree{}, fmt.Errorf("pick up overlay: %w", err)
	}
	return tree{Tree: hostmount.Tree{FD: fd, IsDir: true}, target: o.Target}, nil
}

func mountRootIn(spec wire.RootSpec, layers, box string) (string, error) {
	if spec.Tree {
		root := filepath.Join(box, "tree")
		if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("mount root: %w", err)
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if err := unix.MountSetattr(unix.AT_FDCWD, root, 0, &attr); err != nil {
			return "", fmt.Errorf("protect root: %w", err)
		}
		return root, nil
	}
	// Lower layers have relative names, because mount options are limited to a page.
	if err := unix.Chdir(layers); err != nil {
		return "", fmt.Errorf("enter layers: %w", err)
	}
	root := filepath.Join(box, "root")
	options := overlayOptions + ",lowerdir=" + strings.Join(spec.Lower, ":") + ",upperdir=" + filepath.Join(box, "upper") + ",workdir=" + filepath.Join(box, "work")
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", fmt.Errorf("mount overlay of %d layers: %w", len(spec.Lower), err)
	}
	return root, nil
}

func dropOldRoot(old int) error {
	err := unix.Fchdir(old)
	if err == nil {
		err = unix.Unmount(".", unix.MNT_DETACH)
	}
	if err := errors.Join(err, unix.Close(old), unix.Chdir("/")); err != nil {
		return fmt.Errorf("leave old root: %w", err)
	}
	return nil
}

func openTrees(mounts []wire.Mount) ([]tree, error) {
	all := make([]wire.Mount, 0, len(devices)+len(mounts))
	for _, d := range devices {
		all = append(all, wire.Mount{Source: "/dev/" + d, Target: "/dev/" + d})
	}
	all = append(all, mounts...)
	trees := make([]tree, 0, len(all))
	for _, m := range all {
		picked := hostmount.Tree{FD: m.FD, IsDir: m.IsDir}
		if m.FD == 0 {
			var err error
			if picked, err = hostmount.Clone(m, -1); err != nil {
				return nil, fmt.Errorf("mount %s: %w", m.Target, err)
			}
		}
		trees = append(trees, tree{Tree: picked, target: m.Target})
	}
	return trees, nil
}

func (t tree) attach() error {
	if err := mountPoint(t.target, t.IsDir); err != nil {
		return fmt.Errorf("mount %s: %w", t.target, err)
	}
	err := unix.MoveMount(t.FD, "", unix.AT_FDCWD, t.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err := errors.Join(err, unix.Close(t.FD)); err != nil {
		return fmt.Errorf("mount %s: %w", t.target, err)
	}
	return nil
}

// mountPoint creates a mount point if it does not exist. It does not change existing files. Mount
// points that it creates become part of snapshots.
func mountPoint(path string, isDir bool) error {
	if isDir {
		return os.MkdirAll(path, 0o755)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// mountSystem mounts the file systems of every root. Without a separate PID namespace, /proc is
// taken from the machine later.
func mountSystem(ownProcesses bool, memory int64) error {
	for _, d := range []string{"/proc", "/dev"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", d, err)
		}
	}
	if ownProcesses {
		// Processes only see those that they could trace: not init, whose files belong to the root
		// of its user namespace, who is also the sandbox's root.
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=ptraceable"); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m,nr_inodes=4k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, d := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", d, err)
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,"+sharedMemoryOptions(memory)); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return fmt.Errorf("link /dev/%s: %w", name, err)
		}
	}
	return nil
}

func mask() error {
	for _, path := range masked {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // depends on how the kernel was built
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("mask %s: %w", path, err)
		}
	}
	return nil
}

// hide mounts /dev/null over files.
func hide() error {
	for _, path := range hidden {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // depends on how the kernel was built
		}
		if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	request, err := unix.NewIfreq("lo")
	if err == nil {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	}
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	return nil
}
