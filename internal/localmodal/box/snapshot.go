package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// SnapshotStats is the cost of a snapshot.
type SnapshotStats struct {
	Copied, Linked int           // regular files
	Bytes          int64         // size of the copied files
	Frozen         time.Duration // how long the sandbox was frozen
}

// Snapshot creates a layer named id from the changes of the box since its start. The box is frozen
// meanwhile. Files that have not changed since the box's previous snapshot are shared with its
// layer.
func (b *Box) Snapshot(ctx context.Context, id string) (SnapshotStats, error) {
	b.lockSnapshots()
	defer b.snapshots.Unlock()
	if err := b.rt.RequireSpace(); err != nil {
		return SnapshotStats{}, fmt.Errorf("snapshot sandbox: %w", err)
	}
	building := b.rt.buildPlace()
	c := newCopier(b.previous, b.rt.layerPath, b.rt.ids.shifted)
	started := time.Now()
	err := b.whileFrozen(func() error { return b.rt.copyBox(ctx, c, b.id, building) })
	c.stats.Frozen = time.Since(started)
	if err == nil {
		err = b.rt.publish(building, id)
	}
	if err != nil {
		return c.stats, errors.Join(fmt.Errorf("snapshot sandbox: %w", err), b.rt.trash.discard(building))
	}
	b.previous = c.manifest(id)
	return c.stats, nil
}

// copyBox copies the changes of a box, for both kinds of root.
func (r *Runtime) copyBox(ctx context.Context, c *copier, boxID, dst string) error {
	start, err := readStart(r.startPath(boxID))
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.copyTree(ctx, r.upperPath(boxID), dst); err != nil {
			return err
		}
		return r.copyHostChanges(ctx, c, boxID, dst)
	}
	if err != nil {
		return err
	}
	return c.copyChanges(ctx, start, r.treePath(boxID), dst)
}

// Claim turns the changes of a dead box into a layer named id. If the root was an overlay, it
// copies nothing. It discards the box's other files.
func (r *Runtime) Claim(ctx context.Context, boxID, id string) error {
	changes := r.upperPath(boxID)
	if _, err := os.Lstat(r.treePath(boxID)); err == nil {
		changes = r.buildPlace()
		if err := r.copyBox(ctx, newCopier(nil, nil, r.ids.shifted), boxID, changes); err != nil {
			return errors.Join(fmt.Errorf("claim files of %s: %w", boxID, err), r.trash.discard(changes))
		}
	} else if err := r.moveHostChanges(boxID, changes); err != nil {
		return fmt.Errorf("claim files of %s: %w", boxID, err)
	}
	if err := r.publish(changes, id); err != nil {
		return fmt.Errorf("claim files of %s: %w", boxID, err)
	}
	return r.Discard(boxID)
}

// publish makes a finished tree a layer: it syncs the tree to disk and then renames it.
func (r *Runtime) publish(tree, id string) error {
	if err := syncTree(tree); err != nil {
		return err
	}
	if err := os.Rename(tree, r.layerPath(id)); err != nil {
		return err
	}
	return syncPath(r.layerPath(""))
}

// RemoveLayer deletes a layer in the background. No box may be using it.
func (r *Runtime) RemoveLayer(id string) error { return r.trash.discard(r.layerPath(id)) }

// Missing returns the first of layers that does not exist on disk as a directory; "" if all do.
func (r *Runtime) Missing(layers []string) string {
	for _, id := range layers {
		info, err := os.Stat(r.layerPath(id))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return id
		}
	}
	return ""
}

// Layers lists the layers on disk, except the base.
func (r *Runtime) Layers() ([]string, error) {
	entries, err := os.ReadDir(r.layerPath(""))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Name() != BaseLayer {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
