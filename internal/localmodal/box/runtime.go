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
	// Dir stores layers and running sandboxes. On a file system that overlayfs accepts as an upper
	// layer (ext4, xfs, btrfs, tmpfs; not overlayfs), the cost of starts and snapshots depends on
	// the changes only; on others files are copied.
	Dir string
	// Isolation is the level to use; Open fails if it does not work. Default Auto: namespaces, and
	// in a container, which is a boundary itself, the best level that works.
	Isolation Isolation
	// Container is the kind of container of this process. Default: detected.
	Container string
	// Copies makes roots copies even where they could be overlays.
	Copies bool
	// InitPath is the program that sandboxes run as PID 1; its main must call
	// boxinit.Main first. Default: this program.
	InitPath string
	// Network is the network of sandboxes. Default DefaultNetwork.
	Network Network
	// HostPorts are the ports of this machine's loopback interface that sandboxes with their own
	// network can reach, as host.overwinter.internal. Default: none.
	HostPorts hostports.Set
	// Limits are the limits of each box.
	Limits Limits
	// noCgroups disables control groups, for tests.
	noCgroups bool
	// Logger receives errors that are not returned to a caller. Default: discarded.
	Logger *slog.Logger
}

// Runtime owns a directory of layers and starts boxes. It is safe for concurrent use.
type Runtime struct {
	dir        string
	initPath   string
	logger     *slog.Logger
	isolation  Isolation
	container  string // container of this process; empty if none
	copies     bool   // roots are copies of their layers; else overlays of them
	better     []Refusal
	limits     Limits
	noCgroups  bool
	cgroups    *cgroups   // nil if there are none
	cgroupsErr error      // why there are none
	unlocking  sync.Mutex // see lockLayers
	hostMounts []wire.Mount
	ids        idRange         // ids of root's sandboxes
	idsErr     error           // why there are none although the server runs as root
	idmap      *os.File        // a user namespace with these ids; nil without ids
	mappable   map[string]bool // sources of hostMounts that can be shown with these ids
	hasMounts  map[string]bool // sources of hostMounts that contain other mounts
	spawner    *spawner
	trash      *trash
	watchdog   *watchdog

	networkMode  Network
	hostPorts    hostports.Set
	ownNetwork   bool                    // boxes have their own network; set by probe
	networkCause error                   // why they do not, if it was tried
	listeners    *netstack.HostListeners // nil if no box has sockets for ports of this machine
	opensTUN     bool                    // this process opens the device, otherwise init does
	resolvConf   string                  // for boxes with their own network
	networks     sync.WaitGroup
}

// Open prepares o.Dir, ends processes that sandboxes of an earlier Runtime may have left, and
// determines which sandboxes are possible. It returns an *UnsupportedError if none are. The caller
// must make sure that no other Runtime uses the directory.
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

// makePrivate creates one of our directories, or restricts its permissions. If the server runs as
// root, the directory of layers belongs to the sandboxes' root.
func (r *Runtime) makePrivate(name string) error {
	path := filepath.Join(r.dir, name)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && (idRange{firstID, countIDs}).holds(st.Uid) && os.Geteuid() == 0 {
		return os.Chmod(path, 0o700)
	}
	return privatedir.Make(path, 0o700)
}

// Isolation returns the level of isolation of boxes.
func (r *Runtime) Isolation() Isolation { return r.isolation }

// Container returns the kind of container that sandboxes run in, empty if none.
func (r *Runtime) Container() string { return r.container }

// Copies reports whether the files of a box are copies, not an overlay.
func (r *Runtime) Copies() bool { return r.copies }

// Better returns the ways that were tried before the one in use, with the reasons why they failed.
func (r *Runtime) Better() []Refusal { return r.better }

// Limits returns the limits of each box.
func (r *Runtime) Limits() Limits { return r.limits }

// Unlimited returns why the kernel does not bound the memory and the CPUs of boxes; nil if it does.
func (r *Runtime) Unlimited() error { return r.cgroupsErr }

// Close waits for background work. All boxes must have been killed.
func (r *Runtime) Close() error {
	r.watchdog.close()
	r.spawner.close()
	r.networks.Wait()
	if r.listeners != nil {
		r.listeners.Close()
	}
	r.trash.close()
	if r.cgroups != nil {
		if err := r.cgroups.close(); err != nil { // the next server on this directory reuses the group
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

// Contents of a box's directory: the upper layer of an overlay, or a copied root with the record of
// its state at the start.
func (r *Runtime) upperPath(id string) string { return filepath.Join(r.boxPath(id), "upper") }
func (r *Runtime) treePath(id string) string  { return filepath.Join(r.boxPath(id), "tree") }
func (r *Runtime) startPath(id string) string { return filepath.Join(r.boxPath(id), "start") }

// buildPlace returns a new path for an unfinished tree.
func (r *Runtime) buildPlace() string { return filepath.Join(r.dir, "building", uuid.NewString()) }

// discardUnfinished removes trees that were not finished because of a kill.
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

// endLeftOver ends the processes of boxes whose init was killed together with an earlier Runtime,
// and that had no PID namespace to end them.
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

// LeftOver lists the boxes whose processes ended with an earlier Runtime but whose files still
// exist.
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
