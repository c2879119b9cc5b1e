package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
	"github.com/overwinter-dev/overwinter/internal/privatedir"
)

// Options configure a Runtime.
type Options struct {
	// Dir holds layers and running sandboxes. On a file system that overlayfs takes
	// as an upper layer (ext4, xfs, btrfs, tmpfs; not overlayfs) starts and snapshots
	// cost what has changed; elsewhere files are copied.
	Dir string
	// Isolation is the level to use; Open fails where that does not work. Default
	// Auto: namespaces, and in a container, which is a boundary itself, the best that
	// works.
	Isolation Isolation
	// Container is the kind of container that this process is in. Default: detected.
	Container string
	// Copies has roots copied even where they could be overlays.
	Copies bool
	// InitPath is the program that sandboxes run as PID 1; its main must call
	// boxinit.Main first. Default: this program.
	InitPath string
	// Network is the network of sandboxes. Default DefaultNetwork.
	Network Network
	// HostPorts are the ports of this machine's loopback interface that sandboxes with their own
	// network can reach, as host.overwinter.internal. Default: none.
	HostPorts hostports.Set
	// Limits are those of each box.
	Limits Limits
	// noCgroups leaves control groups out, for tests.
	noCgroups bool
	// Logger gets what has no caller to return to. Default: discarded.
	Logger *slog.Logger
}

// Runtime owns a directory of layers and starts boxes. It is safe for concurrent use.
type Runtime struct {
	dir        string
	initPath   string
	logger     *slog.Logger
	isolation  Isolation
	container  string // that we are in; empty outside
	copies     bool   // roots are copies of their layers; else overlays of them
	better     []Refusal
	limits     Limits
	noCgroups  bool
	cgroups    *cgroups   // nil where there are none
	cgroupsErr error      // why
	unlocking  sync.Mutex // see lockLayers
	hostMounts []wire.Mount
	ids        idRange         // of root's sandboxes
	idsErr     error           // why there are none although we are root
	idmap      *os.File        // a user namespace that has them; nil without
	mappable   map[string]bool // the sources in hostMounts that can be shown with them
	hasMounts  map[string]bool // the sources in hostMounts with other mounts below them
	spawner    *spawner
	trash      *trash
	watchdog   *watchdog

	networkMode  Network
	hostPorts    hostports.Set
	ownNetwork   bool                    // of boxes; settled by probe
	networkCause error                   // why not, if it was tried
	listeners    *netstack.HostListeners // nil where no box has sockets for ports of this machine
	opensTUN     bool                    // we open the device, else init does
	resolvConf   string                  // for boxes with their own network
	networks     sync.WaitGroup
}

// Open prepares o.Dir, ends what an earlier Runtime's sandboxes may have left running, and tries
// out which sandboxes are possible. An *UnsupportedError says that they cannot, and why. The caller
// makes sure that no other Runtime uses the directory.
func Open(ctx context.Context, o Options) (*Runtime, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	r := &Runtime{dir: dir, initPath: o.InitPath, logger: o.Logger, isolation: o.Isolation, container: o.Container, copies: o.Copies, networkMode: o.Network, hostPorts: o.HostPorts, noCgroups: o.noCgroups}
	if err := o.Limits.Check(); err != nil {
		return nil, err
	}
	r.limits = o.Limits.withDefaults()
	if r.container == "" {
		r.container = detectContainer()
	}
	if r.isolation == "" {
		r.isolation = Auto
	}
	if r.networkMode == "" {
		r.networkMode = DefaultNetwork
	}
	if r.initPath == "" {
		r.initPath = "/proc/self/exe"
	}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	for _, name := range []string{"layers", "boxes", "building", "trash"} {
		if err := r.makePrivate(name); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
	}
	r.trash = newTrash(filepath.Join(dir, "trash"), r.logger)
	r.watchdog = newWatchdog(r)
	r.spawner = newSpawner()
	r.ids, r.idsErr = chooseIDs()
	if r.idsErr != nil && !errors.Is(r.idsErr, errNoIDs) {
		return nil, errors.Join(r.idsErr, r.Close())
	}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Runtime) prepare(ctx context.Context) error {
	if err := r.endLeftOver(); err != nil {
		return err
	}
	if r.noCgroups {
		r.cgroupsErr = errors.New("not used")
	} else if r.cgroups, r.cgroupsErr = openCgroups(r.dir); r.cgroupsErr != nil {
		r.cgroups = nil
	}
	if err := r.discardUnfinished(); err != nil {
		return err
	}
	if err := r.migrate(); err != nil {
		return err
	}
	if err := r.buildHostBase(ctx); err != nil {
		return err
	}
	if err := r.findMappable(); err != nil {
		return err
	}
	if err := r.prepareNetwork(); err != nil {
		return err
	}
	return r.probe(ctx)
}

// makePrivate makes one of our directories, or tightens it. That of layers belongs to
// the sandboxes' root when we are root.
func (r *Runtime) makePrivate(name string) error {
	path := filepath.Join(r.dir, name)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && (idRange{firstID, countIDs}).holds(st.Uid) && os.Geteuid() == 0 {
		return os.Chmod(path, 0o700)
	}
	return privatedir.Make(path, 0o700)
}

// Isolation returns how boxes are isolated.
func (r *Runtime) Isolation() Isolation { return r.isolation }

// Container is the kind of container that sandboxes are in, empty outside of any.
func (r *Runtime) Container() string { return r.container }

// Copies reports whether the files of a box are copies, not an overlay.
func (r *Runtime) Copies() bool { return r.copies }

// Better are the ways that were tried before the one in use, with what prevented them.
func (r *Runtime) Better() []Refusal { return r.better }

// Limits are those of each box.
func (r *Runtime) Limits() Limits { return r.limits }

// Unlimited says why the kernel does not bound the memory and the CPUs of boxes; nil where it does.
func (r *Runtime) Unlimited() error { return r.cgroupsErr }

// Close waits for background work. Boxes must have been killed before.
func (r *Runtime) Close() error {
	r.watchdog.close()
	r.spawner.close()
	r.networks.Wait()
	if r.listeners != nil {
		r.listeners.Close()
	}
	r.trash.close()
	if r.cgroups != nil {
		if err := r.cgroups.close(); err != nil { // the next server on this directory uses it again
			r.logger.Warn("control groups stay", slog.Any("error", err))
		}
	}
	if r.idmap != nil {
		return r.idmap.Close()
	}
	return nil
}

func (r *Runtime) layerPath(id string) string { return filepath.Join(r.dir, "layers", id) }
func (r *Runtime) boxPath(id string) string   { return filepath.Join(r.dir, "boxes", id) }

// What a box's directory holds: an overlay's upper layer, or a copied root with
// the record of what it was at the start.
func (r *Runtime) upperPath(id string) string { return filepath.Join(r.boxPath(id), "upper") }
func (r *Runtime) treePath(id string) string  { return filepath.Join(r.boxPath(id), "tree") }
func (r *Runtime) startPath(id string) string { return filepath.Join(r.boxPath(id), "start") }

// buildPlace is a fresh path for a tree that is not yet what it shall be.
func (r *Runtime) buildPlace() string { return filepath.Join(r.dir, "building", uuid.NewString()) }

// discardUnfinished removes what a kill kept from being finished.
func (r *Runtime) discardUnfinished() error {
	entries, err := os.ReadDir(filepath.Join(r.dir, "building"))
	if err != nil {
		return fmt.Errorf("list unfinished files: %w", err)
	}
	for _, e := range entries {
		if err := r.trash.discard(filepath.Join(r.dir, "building", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// endLeftOver ends the processes of boxes whose init was killed together with an
// earlier Runtime, where no PID namespace did that.
func (r *Runtime) endLeftOver() error {
	ids, err := r.LeftOver()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := endInside(r.treePath(id)); err != nil {
			return fmt.Errorf("end what sandbox %s left: %w", id, err)
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
func (r *Runtime) Discard(id string) error { return r.trash.discard(r.boxPath(id)) }
