package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Isolation is how sandboxes are kept apart from the host and each other.
type Isolation string

// Namespaces are Linux namespaces over an overlay file system.
const Namespaces Isolation = "namespaces"

// Options configure a Runtime.
type Options struct {
	// Dir holds layers and running sandboxes. It must lie on a file system that
	// overlayfs accepts as an upper layer (ext4, xfs, btrfs, tmpfs; not overlayfs).
	Dir string
	// InitPath is the program that sandboxes run as PID 1; its main must call
	// boxinit.Main first. Default: this program.
	InitPath string
	// Logger gets what has no caller to return to. Default: discarded.
	Logger *slog.Logger
}

// Runtime owns a directory of layers and starts boxes. It is safe for concurrent use.
type Runtime struct {
	dir        string
	initPath   string
	logger     *slog.Logger
	isolation  Isolation
	hostMounts []wire.Mount
	spawner    *spawner
	trash      *trash
}

// Open prepares o.Dir and tries out whether sandboxes can be had. An
// *UnsupportedError says that they cannot, and why. The caller makes sure that no
// other Runtime uses the directory.
func Open(ctx context.Context, o Options) (*Runtime, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	for _, name := range []string{"layers", "boxes", "building", "trash"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
	}
	r := &Runtime{dir: dir, initPath: o.InitPath, logger: o.Logger, isolation: Namespaces}
	if r.initPath == "" {
		r.initPath = "/proc/self/exe"
	}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	r.trash = newTrash(filepath.Join(dir, "trash"), r.logger)
	r.spawner = newSpawner()
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Runtime) prepare(ctx context.Context) error {
	if err := r.discardUnfinished(); err != nil {
		return err
	}
	if err := r.buildHostBase(ctx); err != nil {
		return err
	}
	return r.probe(ctx)
}

// Isolation tells how boxes are isolated.
func (r *Runtime) Isolation() Isolation { return r.isolation }

// Close waits for background work. Boxes must have been killed before.
func (r *Runtime) Close() error {
	r.spawner.close()
	r.trash.close()
	return nil
}

func (r *Runtime) layerPath(id string) string { return filepath.Join(r.dir, "layers", id) }
func (r *Runtime) boxPath(id string) string   { return filepath.Join(r.dir, "boxes", id) }

// buildPlace is a fresh path for a tree that is not yet what it shall be.
func (r *Runtime) buildPlace() string { return filepath.Join(r.dir, "building", uuid.NewString()) }

// discardUnfinished removes what a kill kept from being finished.
func (r *Runtime) discardUnfinished() error {
	entries, err := os.ReadDir(filepath.Join(r.dir, "building"))
	if err != nil {
		return fmt.Errorf("list unfinished files: %w", err)
	}
	for _, e := range entries {
		if err := r.trash.put(filepath.Join(r.dir, "building", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// LeftOver lists the boxes whose files are still there although their processes
// ended with an earlier Runtime.
func (r *Runtime) LeftOver() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, "boxes"))
	if err != nil {
		return nil, fmt.Errorf("list left-over sandboxes: %w", err)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// Discard deletes the files of a dead box in the background.
func (r *Runtime) Discard(id string) error { return r.trash.put(r.boxPath(id)) }
