package boxinit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountImage mounts an empty file system at path and fills it from the tar stream in files[0], if
// any. It is in memory, and snapshots of the root do not contain it.
func mountImage(path string, memory int64, files []*os.File) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,"+imageOptions(memory)); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if len(files) == 0 {
		return nil
	}
	if err := extract(files[0], path); err != nil {
		return errors.Join(fmt.Errorf("fill %s: %w", path, err), unix.Unmount(path, unix.MNT_DETACH))
	}
	return nil
}

func unmountImage(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
