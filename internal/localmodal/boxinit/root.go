package boxinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Bound from the host's /dev: making device nodes is not allowed in a user
// namespace.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Files below /proc that reach the whole machine, which a root with the identity
// mapping could write to.
var masked = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"}

// tree is a mount that has been picked up on the host and not yet put down.
type tree struct {
	fd     int
	target string
	isDir  bool
}

// buildRoot mounts the overlay, or the tree, and makes it our root. Everything that is mounted
// into it comes after the switch, so that a symbolic link in an image cannot
// lead a mount point out onto the host.
func buildRoot(spec wire.RootSpec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	root, err := mountRoot(spec)
	if err != nil {
		return err
	}
	mounts := spec.Mounts
	if spec.Level != wire.LevelNamespaces { // the machine's processes are ours as well
		mounts = append([]wire.Mount{{Source: "/proc", Target: "/proc"}}, mounts...)
	}
	trees, err := pickUp(mounts)
	if err != nil {
		return err
	}
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
	// The kernel lets us mount /proc only while a full one is in sight: that of
	// the old root.
	if err := mountSystem(spec.Level == wire.LevelNamespaces); err != nil {
		return err
	}
	for _, t := range trees {
		if err := t.putDown(); err != nil {
			return err
		}
	}
	if err := mask(); err != nil {
		return err
	}
	return dropOldRoot(old)
}

// mountRoot returns where the root is mounted now.
func mountRoot(spec wire.RootSpec) (string, error) {
	if spec.Tree != "" {
		if err := unix.Mount(spec.Tree, spec.Tree, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("mount root: %w", err)
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if err := unix.MountSetattr(unix.AT_FDCWD, spec.Tree, 0, &attr); err != nil {
			return "", fmt.Errorf("protect root: %w", err)
		}
		return spec.Tree, nil
	}
	options := "userxattr,lowerdir=" + strings.Join(spec.Lower, ":") + ",upperdir=" + spec.Upper + ",workdir=" + spec.Work
	if err := unix.Mount("overlay", spec.Root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", fmt.Errorf("mount overlay of %d layers: %w", len(spec.Lower), err)
	}
	return spec.Root, nil
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

func pickUp(mounts []wire.Mount) ([]tree, error) {
	all := make([]wire.Mount, 0, len(devices)+len(mounts))
	for _, d := range devices {
		all = append(all, wire.Mount{Source: "/dev/" + d, Target: "/dev/" + d})
	}
	all = append(all, mounts...)
	trees := make([]tree, 0, len(all))
	for _, m := range all {
		fd, isDir, err := pickUpOne(m)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if m.ReadOnly {
			attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
				return nil, fmt.Errorf("make %s read-only: %w", m.Source, err)
			}
		}
		trees = append(trees, tree{fd: fd, target: m.Target, isDir: isDir})
	}
	return trees, nil
}

// pickUpOne resolves the source once: what is checked is what is mounted.
func pickUpOne(m wire.Mount) (fd int, isDir bool, err error) {
	source, err := openSource(m)
	if err != nil {
		return -1, false, err
	}
	defer unix.Close(source)
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return -1, false, fmt.Errorf("look at %s: %w", m.Source, err)
	}
	fd, err = unix.OpenTree(source, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, false, fmt.Errorf("pick up %s: %w", m.Source, err)
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// openSource returns a descriptor of what is to be mounted. Below Source no link is
// followed, whatever a sandbox that has it mounted does meanwhile.
func openSource(m wire.Mount) (int, error) {
	root, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", m.Source, err)
	}
	if m.Sub == "" {
		return root, nil
	}
	defer unix.Close(root)
	sub, err := unix.Openat2(root, m.Sub, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open %s below %s: %w", m.Sub, m.Source, err)
	}
	return sub, nil
}

func (t tree) putDown() error {
	if err := mountPoint(t.target, t.isDir); err != nil {
		return fmt.Errorf("mount %s: %w", t.target, err)
	}
	err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err := errors.Join(err, unix.Close(t.fd)); err != nil {
		return fmt.Errorf("mount %s: %w", t.target, err)
	}
	return nil
}

// mountPoint makes sure that there is something to mount on, touching nothing
// that exists: what is made here ends up in snapshots.
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

// mountSystem mounts what every root has. Without processes of our own, /proc is
// picked up from the machine later.
func mountSystem(ownProcesses bool) error {
	for _, d := range []string{"/proc", "/dev"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", d, err)
		}
	}
	if ownProcesses {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
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
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
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
