package box

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Network is the kind of network of sandboxes.
type Network string

// The networks.
const (
	// OwnedNetwork is a separate network namespace for each sandbox, which a user-mode stack
	// connects only to the internet (package netstack). It requires the level Namespaces.
	OwnedNetwork Network = "own"
	// SharedNetwork is the machine's network.
	SharedNetwork Network = "shared"
	// AutoNetwork is OwnedNetwork on the level Namespaces, except in a container that
	// does not allow it, and SharedNetwork on the others.
	AutoNetwork Network = "auto"
)

// DefaultNetwork is the network of a Runtime whose Options specify none.
const DefaultNetwork = AutoNetwork

// ParseNetwork parses a network; the empty string is DefaultNetwork.
func ParseNetwork(text string) (Network, error) {
	switch n := Network(text); n {
	case "":
		return DefaultNetwork, nil
	case OwnedNetwork, SharedNetwork, AutoNetwork:
		return n, nil
	default:
		return "", fmt.Errorf("unknown sandbox network %q: must be %s, %s or %s", text, OwnedNetwork, SharedNetwork, AutoNetwork)
	}
}

// networkError reports that a sandbox starts without a separate network, but not with one.
type networkError struct{ cause error }

func (e *networkError) Error() string {
	return "sandboxes cannot have their own network: " + e.cause.Error()
}
func (e *networkError) Unwrap() error { return e.cause }

// prepareNetwork performs the checks that do not require starting a sandbox.
func (r *Runtime) prepareNetwork() error {
	if r.networkMode == SharedNetwork {
		return nil
	}
	r.resolvConf = filepath.Join(r.dir, "resolv.conf")
	if err := os.WriteFile(r.resolvConf, []byte(netstack.ResolvConf()), 0o644); err != nil { // sandboxes read it
		return fmt.Errorf("write resolver configuration: %w", err)
	}
	if err := os.Chmod(r.resolvConf, 0o644); err != nil { // regardless of the umask
		return fmt.Errorf("write resolver configuration: %w", err)
	}
	if len(r.hostPorts.First(netdevice.MaxHostSockets)) > 0 {
		var err error
		if r.listeners, err = netstack.NewHostListeners(); err != nil {
			r.listeners = nil
			r.logger.Debug("no sockets for host ports: using the network stack for them", slog.Any("error", err))
		}
	}
	if os.Geteuid() == 0 {
		if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
			r.opensTUN = true
			return f.Close()
		}
	}
	return nil
}

// ownsNetwork reports whether a box has its own network with access to the outside.
func (r *Runtime) ownsNetwork(spec Spec) bool {
	return r.ownNetwork && !spec.BlockNetwork && !spec.Bare
}

// OwnsNetwork reports whether each sandbox has its own network.
func (r *Runtime) OwnsNetwork() bool { return r.ownNetwork }

// HostPorts returns the ports of this machine's loopback interface that sandboxes with their own
// network can reach.
func (r *Runtime) HostPorts() hostports.Set { return r.hostPorts }

// Lacks returns the abilities that sandboxes lack compared with those of the best level.
func (r *Runtime) Lacks() []Lack {
	lacks := r.isolation.Lacks()
	if !r.Installs() {
		lacks = append(lacks, readOnlyPrograms)
	}
	if r.isolation != Namespaces || r.ownNetwork {
		return lacks
	}
	lack := sharedNetwork
	if r.networkCause != nil {
		lack.Reason += " (" + r.networkCause.Error() + ")"
	}
	return append(lacks, lack)
}

// outerNetwork is the server's access to the network namespace of a box.
type outerNetwork struct {
	device  *netdevice.Device
	sockets *netdevice.HostSockets // sockets for ports of this machine; may be nil
}

// hostSocketPorts returns the ports of this machine for which a box has sockets.
func (b *Box) hostSocketPorts() []uint16 {
	if b.rt.listeners == nil || b.allow != nil {
		return nil
	}
	return b.rt.hostPorts.First(netdevice.MaxHostSockets)
}

// openNetwork opens a device in the network namespace of init, and sockets for ports. /dev/net/tun
// may be accessible only to root, which init is not.
func (b *Box) openNetwork(ports []uint16) (outerNetwork, error) {
	type result struct {
		network outerNetwork
		err     error
	}
	opened := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the other namespace
		network, err := func() (o outerNetwork, err error) {
			ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(b.PID()), "ns", "net"))
			if err != nil {
				return o, err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return o, fmt.Errorf("enter network namespace: %w", err)
			}
			if o.device, err = netdevice.OpenKind(netdevice.TUN); err != nil || len(ports) == 0 {
				return o, err
			}
			if o.sockets, err = netdevice.OpenHostSockets(ports); err != nil {
				b.noHostSockets(err.Error())
			}
			return o, nil
		}()
		opened <- result{network, err}
	}()
	r := <-opened
	return r.network, r.err
}

// noHostSockets logs why the stack serves all ports of this machine.
func (b *Box) noHostSockets(reason string) {
	b.rt.logger.Debug("no sockets for host ports: using the network stack for them", slog.String("sandbox_id", b.id), slog.String("reason", reason))
}

// serveNetwork starts the outer side of a box's network.
func (b *Box) serveNetwork(o outerNetwork) (err error) {
	b.network, err = netstack.New(o.device, netstack.Config{
		HostPorts: b.rt.hostPorts, Allow: b.allow, HostSockets: o.sockets, Listeners: b.rt.listeners,
	})
	return err
}

// closeNetwork closes the network in the background, since the kernel takes long to remove a
// device.
func (b *Box) closeNetwork() {
	if b.network != nil {
		b.rt.networks.Go(b.network.Close)
	}
}

// adopt creates a network from the files that init has sent; nil if none was requested. The files
// after that of the device are sockets for ports.
func (b *Box) adopt(response wire.Response, files []*os.File, ports []uint16) (*outerNetwork, error) {
	if response.Device == "" {
		wire.CloseAll(files)
		return nil, nil
	}
	if response.Lack != "" {
		b.noHostSockets(response.Lack)
	}
	if len(files) != 1 && len(files) != 2+len(ports) {
		wire.CloseAll(files)
		return nil, fmt.Errorf("init sent %d files of its network", len(files))
	}
	device, err := netdevice.Adopt(netdevice.Kind(response.Device), files[0])
	if err != nil {
		wire.CloseAll(files[1:])
		return nil, err
	}
	o := &outerNetwork{device: device}
	if len(files) > 1 {
		o.sockets = netdevice.AdoptHostSockets(files[1:])
	}
	return o, nil
}

// Refusals returns the connections that the box's network has refused since the refusal with that
// number, and the number to continue from. It returns an error if the box shares the machine's
// network.
func (b *Box) Refusals(after int64) ([]netstack.Refusal, int64, error) {
	if b.network == nil {
		return nil, 0, &LackError{Isolation: b.rt.isolation, Lack: sharedNetwork}
	}
	refusals, last := b.network.Refusals(after)
	return refusals, last, nil
}
