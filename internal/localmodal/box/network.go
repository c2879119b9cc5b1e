package box

import (
	"errors"
	"fmt"
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

// Network is which network sandboxes have.
type Network string

// The networks.
const (
	// OwnedNetwork is a network namespace for each sandbox, which a user-mode stack
	// connects to the internet alone (package netstack). It takes the level Namespaces.
	OwnedNetwork Network = "own"
	// SharedNetwork is the machine's.
	SharedNetwork Network = "shared"
	// AutoNetwork is OwnedNetwork on the level Namespaces, except in a container that
	// does not allow it, and SharedNetwork on the others.
	AutoNetwork Network = "auto"
)

// DefaultNetwork is what a Runtime uses that is not given a network.
const DefaultNetwork = AutoNetwork

// ParseNetwork reads a network; the empty string is DefaultNetwork.
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

// networkError says that a sandbox starts without a separate network, but not with one.
type networkError struct{ cause error }

func (e *networkError) Error() string {
	return "sandboxes cannot have their own network: " + e.cause.Error()
}
func (e *networkError) Unwrap() error { return e.cause }

// prepareNetwork finds out what can be known without a sandbox.
func (r *Runtime) prepareNetwork() error {
	if r.networkMode == SharedNetwork {
		return nil
	}
	r.resolvConf = filepath.Join(r.dir, "resolv.conf")
	if err := os.WriteFile(r.resolvConf, []byte(netstack.ResolvConf()), 0o644); err != nil { //nolint:gosec // sandboxes read it
		return fmt.Errorf("write resolver configuration: %w", err)
	}
	if err := os.Chmod(r.resolvConf, 0o644); err != nil { //nolint:gosec // whatever the umask
		return fmt.Errorf("write resolver configuration: %w", err)
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

// HostPorts are the ports of this machine's loopback interface that sandboxes with their own
// network can reach.
func (r *Runtime) HostPorts() hostports.Set { return r.hostPorts }

// Lacks is what sandboxes cannot do that those of the best level can.
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

// openTUN opens a device in the network namespace of a process. /dev/net/tun may be
// for root alone, whom init is not.
func openTUN(pid int) (*netdevice.Device, error) {
	type result struct {
		device *netdevice.Device
		err    error
	}
	opened := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the other namespace
		device, err := func() (*netdevice.Device, error) {
			ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", "net"))
			if err != nil {
				return nil, err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("enter network namespace: %w", err)
			}
			return netdevice.OpenKind(netdevice.TUN)
		}()
		opened <- result{device, err}
	}()
	r := <-opened
	return r.device, r.err
}

// serveNetwork starts the outer side of a box's network.
func (b *Box) serveNetwork(device *netdevice.Device) (err error) {
	b.network, err = netstack.New(device, netstack.Config{HostPorts: b.rt.hostPorts, Allow: b.allow})
	return err
}

// closeNetwork ends the network in the background: the kernel takes its time to remove
// a device.
func (b *Box) closeNetwork() {
	if b.network != nil {
		b.rt.networks.Go(b.network.Close)
	}
}

// adopt makes a device of what init has sent.
func adopt(response wire.Response, files []*os.File) (*netdevice.Device, error) {
	if response.Device == "" || len(files) != 1 {
		wire.CloseAll(files)
		if response.Device != "" {
			return nil, errors.New("init sent no network device")
		}
		return nil, nil
	}
	return netdevice.Adopt(netdevice.Kind(response.Device), files[0])
}

// Refusals returns what the box's network has refused since the refusal with that number, and the
// number to continue from. It fails if the box shares the machine's network.
func (b *Box) Refusals(after int64) ([]netstack.Refusal, int64, error) {
	if b.network == nil {
		return nil, 0, &LackError{Isolation: b.rt.isolation, Lack: sharedNetwork}
	}
	refusals, last := b.network.Refusals(after)
	return refusals, last, nil
}
