package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// ErrGone is returned for a box whose PID 1 has ended.
var ErrGone = errors.New("sandbox has ended")

// startTimeout bounds building a root, on a possibly very busy machine.
const startTimeout = 30 * time.Second

// Spec describes a box to start.
type Spec struct {
	ID           string              // also names its directory
	Layers       []string            // layers of the root, top first; the last is BaseLayer
	Hostname     string              // default "modal"
	Workdir      string              // created if missing; empty for none
	Mounts       []wire.Mount        // mounts from the host
	BlockNetwork bool                // a network namespace with only loopback
	Allow        *netstack.Allowlist // the reachable addresses; nil for the internet
	Bare         bool                // only to be read: without the machine's programs
	Limits       Limits              // narrow those of the Runtime; wider ones have no effect
}

// Box is a running sandbox. It is safe for concurrent use.
type Box struct {
	id      string
	rt      *Runtime
	layers  []string
	limits  Limits
	allow   *netstack.Allowlist
	cmd     *exec.Cmd
	control *control
	// network is the outer side of the box's own network; nil if it shares the machine's.
	network *netstack.Network

	exceeded atomic.Pointer[ExceededError] // why the watchdog ended the box

	snapshots sync.Mutex // held while the box is stopped; guards previous
	previous  *manifest  // of the last snapshot; nil if there was none
	// resume ends a pause because another operation must stop the box. It has room for one request
	// that comes before the pause checks it.
	resume chan struct{}
}

// Start builds the root, starts the box's init and returns when it is ready. It returns a
// *LackError if the Runtime's isolation does not support the spec.
func (r *Runtime) Start(ctx context.Context, spec Spec) (*Box, error) {
	if spec.BlockNetwork {
		if err := r.isolation.require(BlockedNetwork); err != nil {
			return nil, err
		}
	}
	if spec.Allow != nil && !r.ownsNetwork(spec) {
		return nil, &LackError{Isolation: r.isolation, Lack: sharedNetwork}
	}
	b := &Box{id: spec.ID, rt: r, layers: spec.Layers, allow: spec.Allow, limits: r.limits.narrowed(spec.Limits), resume: make(chan struct{}, 1)}
	root := wire.RootSpec{
		Level: string(r.isolation), Processes: b.limits.Processes, Memory: b.limits.Memory, Expendable: r.cgroups == nil, Hostname: spec.Hostname, Workdir: spec.Workdir, Loopback: spec.BlockNetwork,
		Layers: wire.Place{Path: r.layerPath("")}, Box: wire.Place{Path: r.boxPath(spec.ID)},
	}
	if r.isolation == Namespaces {
		root.IDs = 1
		if r.ids.count > 0 {
			root.IDs = int(r.ids.count)
		}
	}
	if root.Hostname == "" {
		root.Hostname = "modal"
	}
	if !spec.Bare {
		var err error
		if root.Mounts, root.Overlays, err = r.splitMounts(spec.Layers); err != nil {
			return nil, fmt.Errorf("start sandbox: %w", err)
		}
	}
	root.Mounts = append(root.Mounts, spec.Mounts...)
	own := r.ownsNetwork(spec)
	switch {
	case own:
		root.Mounts = append(root.Mounts, wire.Mount{Source: r.resolvConf, Target: "/etc/resolv.conf", ReadOnly: true})
		if root.Network = !r.opensTUN; root.Network {
			root.HostPorts = b.hostSocketPorts()
		}
	case !spec.Bare && !spec.BlockNetwork:
		root.Mounts = append(root.Mounts, resolverMounts()...)
	}
	if err := r.makeOwned(r.boxPath(spec.ID), 0o700); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	err := b.prepareRoot(ctx, &root)
	if err == nil {
		err = b.launch(ctx, root, own, spec.BlockNetwork)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start sandbox: %w", err), r.Discard(spec.ID))
	}
	if err := r.watchdog.add(b); err != nil {
		b.Kill()
		return nil, errors.Join(fmt.Errorf("start sandbox: %w", err), r.Discard(spec.ID))
	}
	select {
	case <-b.Gone(): // possibly before it was added
		r.watchdog.remove(b)
	default:
	}
	return b, nil
}

// prepareRoot creates the files from which init builds the root.
func (b *Box) prepareRoot(ctx context.Context, root *wire.RootSpec) error {
	if b.rt.copies {
		root.Tree = true
		if err := b.rt.copyLayers(ctx, b.layers, b.rt.treePath(b.id)); err != nil {
			return err
		}
		return recordStart(b.rt.treePath(b.id), b.rt.startPath(b.id))
	}
	root.Lower = b.layers
	for _, name := range []string{"root", "upper", "work"} {
		if err := b.rt.makeOwned(filepath.Join(b.rt.boxPath(b.id), name), 0o755); err != nil {
			return err
		}
	}
	return b.makeChanges(root.Overlays)
}

func (b *Box) launch(ctx context.Context, root wire.RootSpec, own, blocked bool) error {
	conn, remote, err := wire.Pair()
	if err != nil {
		return err
	}
	mounts, err := b.rt.openMounts(&root)
	if err != nil {
		return errors.Join(err, conn.Close(), remote.Close())
	}
	spec, err := wire.MemoryFile(root)
	if err != nil {
		wire.CloseAll(mounts)
		return errors.Join(err, conn.Close(), remote.Close())
	}

	complaints := &initLog{logger: b.rt.logger, box: b.id}
	cmd := exec.Command(b.rt.initPath) //nolint:noctx // the box outlives the call that creates it; Kill ends it
	cmd.Args = []string{wire.InitName}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + DefaultPath, "GOMAXPROCS=2"}
	cmd.Stderr = complaints
	cmd.WaitDelay = time.Second
	cmd.ExtraFiles = append([]*os.File{remote, spec}, mounts...)
	cmd.SysProcAttr = b.rt.attributes(own || blocked)
	err = b.rt.spawner.start(cmd)
	wire.CloseAll(cmd.ExtraFiles) // the socket must close when init ends
	if err != nil {
		return errors.Join(fmt.Errorf("enter namespaces: %w", err), conn.Close())
	}
	b.cmd = cmd
	// Before init can start any process.
	if err = b.admit(); err == nil {
		err = b.awaitReady(ctx, conn, own)
	}
	if err != nil {
		b.closeNetwork()
		// No process runs yet that could outlive init.
		kill := cmd.Process.Kill()
		if errors.Is(kill, os.ErrProcessDone) {
			kill = nil
		}
		_ = cmd.Wait() // "killed"; it only has to end
		b.leave()
		return errors.Join(err, kill, conn.Close(), complaints.err())
	}
	b.control = newControl(conn, func() {
		_ = cmd.Wait()
		b.closeNetwork()
		b.sweep()
		b.leave()
		b.rt.watchdog.remove(b)
	})
	return nil
}

// awaitReady starts the box's own network, if it needs one, and returns when init is ready.
func (b *Box) awaitReady(ctx context.Context, conn *wire.Conn, own bool) error {
	if own && b.rt.opensTUN { // while init builds the root
		network, err := b.openNetwork(b.hostSocketPorts())
		if err == nil {
			err = b.serveNetwork(network) //nolint:contextcheck // the network outlives the call
		}
		if err != nil {
			return err
		}
	}
	response, files, err := awaitReady(ctx, conn)
	if err != nil {
		return err
	}
	network, err := b.adopt(response, files, b.hostSocketPorts())
	switch {
	case err != nil:
		return err
	case network != nil:
		return b.serveNetwork(*network) //nolint:contextcheck // the network outlives the call
	case own && b.network == nil:
		return errors.New("init sent no network device")
	}
	return nil
}

// awaitReady returns when init reports that it is ready, with the files that init has opened.
func awaitReady(ctx context.Context, conn *wire.Conn) (response wire.Response, files []*os.File, err error) {
	deadline := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return response, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	files, err = conn.Receive(&response)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("wait for init: %w", err)
	case response.Op != wire.OpReady:
		err = errors.New(response.Error)
	default:
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		wire.CloseAll(files)
		return response, nil, err
	}
	return response, files, nil
}

// attributes returns the attributes that start init in the namespaces of the level. Sandboxes of
// root have a range of ids that belong to no user of the machine; an ordinary user can only map
// their own id.
func (r *Runtime) attributes(network bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	switch r.isolation {
	case Chroot:
		// The descendants of init would survive its death. Init is therefore not killed with this
		// process: when the control socket closes, it ends them and itself.
		attr.Cloneflags = syscall.CLONE_NEWNS
		if os.Geteuid() == 0 {
			return attr // the user namespace may be unavailable
		}
		attr.Cloneflags |= syscall.CLONE_NEWUSER
	case Directory:
		attr.Pdeathsig = syscall.SIGKILL // the kernel kills the processes that it traces
		return attr
	default:
		attr.Pdeathsig = syscall.SIGKILL
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
		if network {
			attr.Cloneflags |= syscall.CLONE_NEWNET
		}
	}
	if r.ids.count > 0 {
		r.ids.mapInto(attr)
		return attr
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	return attr
}

// PID returns the PID of the sandbox's init on the host.
func (b *Box) PID() int { return b.cmd.Process.Pid }

// Gone is closed when no process of the box remains.
func (b *Box) Gone() <-chan struct{} { return b.control.gone }

// Kill ends every process of the box and returns when they have ended.
func (b *Box) Kill() {
	if b.rt.isolation != Namespaces {
		b.end()
		return
	}
	// The kernel kills all processes of a PID namespace with its PID 1, and completes a wait for
	// PID 1 only after that. The only possible error is that it has already ended.
	_ = b.cmd.Process.Kill()
	<-b.control.gone
}

// endTimeout is how long init may take to end all its descendants.
const endTimeout = 5 * time.Second

// end makes init kill all processes first, because without a PID namespace the kernel does not.
func (b *Box) end() {
	asked := time.NewTimer(endTimeout)
	defer asked.Stop()
	if err := b.control.conn.Send(wire.Request{Op: wire.OpEnd}); err == nil {
		select {
		case <-b.control.gone:
			return
		case <-asked.C:
		}
	}
	_ = b.cmd.Process.Kill() // or init has already ended
	<-b.control.gone
}

// admit moves init to the box's control group, if control groups are available.
func (b *Box) admit() error {
	if b.rt.cgroups == nil {
		return nil
	}
	return b.rt.cgroups.admit(b.id, b.PID(), b.limits)
}

// leave removes the control group of a box that has ended.
func (b *Box) leave() {
	if b.rt.cgroups == nil {
		return
	}
	if err := b.rt.cgroups.remove(b.id); err != nil {
		b.rt.logger.Warn("control group stays until the next start", slog.String("sandbox_id", b.id), slog.Any("error", err))
	}
}

// sweep ends processes that init left running because it was killed.
func (b *Box) sweep() {
	if b.rt.isolation != Chroot {
		return
	}
	if err := endInside(b.rt.treePath(b.id)); err != nil {
		b.rt.logger.Error("sandbox could not be ended", slog.String("sandbox_id", b.id), slog.Any("error", err))
	}
}
