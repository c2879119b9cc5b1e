package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// syncFew is the number of files up to which each is synced separately; beyond it, one sync of the
// whole file system is cheaper.
const syncFew = 64

// syncTree syncs a tree to disk.
func syncTree(root string) error {
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || entry.Type().IsRegular()) {
			paths = append(paths, path)
			if len(paths) > syncFew {
				return fs.SkipAll
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrPermission) {
		return syncFilesystem(root)
	}
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if len(paths) > syncFew {
		return syncFilesystem(root)
	}
	for _, path := range paths {
		err := syncPath(path)
		if errors.Is(err, fs.ErrPermission) { // a mode that denies us access
			return syncFilesystem(root)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncFilesystem(root string) error {
	f, err := os.Open(filepath.Dir(root))
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
