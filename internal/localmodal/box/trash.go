package box

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"
)

// trash deletes trees in the background. After a kill, the next start deletes the remaining ones.
type trash struct {
	dir    string
	logger *slog.Logger
	wake   chan struct{} // one pending wake-up is enough: the worker empties the directory
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
}

func newTrash(dir string, logger *slog.Logger) *trash {
	t := &trash{dir: dir, logger: logger, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	t.wake <- struct{}{}
	go t.run()
	return t
}

// discard moves a tree to the trash; it returns nil if the tree does not exist.
func (t *trash) discard(path string) error {
	err := os.Rename(path, filepath.Join(t.dir, uuid.NewString()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discard %s: %w", filepath.Base(path), err)
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return nil
}

func (t *trash) run() {
	defer close(t.done)
	for {
		select {
		case <-t.stop:
			return
		case <-t.wake:
		}
		if err := t.empty(); err != nil {
			t.logger.Warn("discarded files could not all be deleted", slog.Any("error", err))
		}
	}
}

func (t *trash) empty() error {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	var failures []error
	for _, e := range entries {
		select {
		case <-t.stop:
			return errors.Join(failures...)
		default:
		}
		if err := removeAll(filepath.Join(t.dir, e.Name())); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// close waits for the current tree; the next start deletes the rest.
func (t *trash) close() {
	t.once.Do(func() { close(t.stop) })
	<-t.done
}

// removeAll also deletes directories whose modes deny access to their owner: overlayfs leaves a
// directory with mode 0, and sandboxes may create others.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = filepath.WalkDir(path, func(p string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(p, 0o700) // called before its entries are read
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(path)
}
