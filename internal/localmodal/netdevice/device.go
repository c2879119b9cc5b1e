package netdevice

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Addresses in every namespace.
var (
	Address     = netip.MustParseAddr("192.168.127.2")
	Address6    = netip.MustParseAddr("fd6f:7677:6e74::2")
	Gateway     = netip.MustParseAddr("192.168.127.1")   // DNS
	HostAddress = netip.MustParseAddr("192.168.127.254") // allowed ports of this machine's loopback interface
)

const (
	// MTU is the size of the largest packet without offload. It is far above that of any physical
	// link, because the stack terminates every connection and its packets never leave it.
	MTU = 65520
	// VirtioHeader is the size of struct virtio_net_hdr.
	VirtioHeader = 10
	// EthernetHeader is the size of an Ethernet header.
	EthernetHeader = 14

	interfaceName = "eth0"
	peerName      = "stack0"
)

// Kind is the kind of a device.
type Kind string

// The kinds of devices.
const (
	TUN  Kind = "tun"
	Veth Kind = "veth"
)

// Device is the outer end of an interface. Reading File returns one packet, writing it sends one;
// each starts with a virtio header, followed by Header.
type Device struct {
	Kind Kind
	File *os.File
	// Header is the Ethernet header of packets to the namespace; empty without Ethernet.
	// Its last two bytes are the packet's protocol.
	Header []byte
}

// Open creates and configures a device in the network namespace of the calling
// thread: a tun if possible, else a veth pair.
func Open() (*Device, error) {
	device, err := OpenKind(TUN)
	if err == nil {
		return device, nil
	}
	device, second := OpenKind(Veth)
	if second != nil {
		return nil, errors.Join(err, second)
	}
	return device, nil
}

// OpenKind is Open for one kind of device.
func OpenKind(kind Kind) (*Device, error) {
	r, err := dialRoute()
	if err != nil {
		return nil, err
	}
	defer r.close()
	var fd int
	if kind == TUN {
		fd, err = openTUN()
	} else {
		fd, err = openVeth(r)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s device: %w", kind, err)
	}
	if err := configure(r); err != nil {
		return nil, errors.Join(fmt.Errorf("configure %s device: %w", kind, err), unix.Close(fd))
	}
	device, err := Adopt(kind, os.NewFile(uintptr(fd), string(kind)))
	if err != nil {
		return nil, err
	}
	return device, nil
}

// Adopt creates a device from a descriptor that another process opened.
func Adopt(kind Kind, file *os.File) (*Device, error) {
	// A second file for the descriptor, because the runtime only polls a new one.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("adopt %s device: %w", kind, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s device: %w", kind, err), unix.Close(fd))
	}
	device := &Device{Kind: kind, File: os.NewFile(uintptr(fd), string(kind))}
	if kind == Veth {
		// The interface ignores link addresses other than its own (see openVeth).
		device.Header = make([]byte, EthernetHeader)
		copy(device.Header, vethAddress)
		copy(device.Header[6:], peerAddress)
	}
	return device, nil
}

// openTUN creates a tun. It belongs to the namespace in which /dev/net/tun is opened.
func openTUN() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(interfaceName)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("create interface: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// Link addresses of a veth pair: locally administered, the same in every namespace.
var (
	vethAddress = []byte{0x02, 0x6f, 0x76, 0x77, 0x6e, 0x02}
	peerAddress = []byte{0x02, 0x6f, 0x76, 0x77, 0x6e, 0x01}
)

// receiveBuffer is the receive buffer of a packet socket: a few windows of TCP.
const receiveBuffer = 4 << 20

// openVeth creates a veth pair and a packet socket on the peer.
func openVeth(r *route) (int, error) {
	if err := r.addVeth(interfaceName, peerName); err != nil {
		return 0, fmt.Errorf("create interfaces: %w", err)
	}
	peer, err := interfaceIndex(peerName)
	if err != nil {
		return 0, err
	}
	own, err := interfaceIndex(interfaceName)
	if err != nil {
		return 0, err
	}
	// Without ARP the kernel sends all packets to the interface's own link address.
	if err := errors.Join(r.setLink(own, 0, unix.IFF_NOARP, vethAddress), r.setLink(peer, MTU, unix.IFF_NOARP|unix.IFF_UP, peerAddress)); err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open packet socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // the kernel may allow less
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		// The queue of an interface drops packets for a moment after the interface comes up.
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: peer}),
	)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("set up packet socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// configure sets the addresses of the interface and the default routes, and allows unprivileged
// processes to listen on any port.
func configure(r *route) error {
	index, err := interfaceIndex(interfaceName)
	if err != nil {
		return err
	}
	loopback, err := interfaceIndex("lo")
	if err != nil {
		return err
	}
	err = errors.Join(r.setLink(loopback, 0, unix.IFF_UP, nil), r.setLink(index, MTU, unix.IFF_UP, nil),
		r.addAddress(index, Address), r.addDefaultRoute(index, unix.AF_INET))
	if err != nil {
		return err
	}
	if err := r.addAddress(index, Address6); err == nil {
		// The kernel accepts packets to a new address only after one of its own tasks has run.
		if err := errors.Join(r.addLocalRoute(loopback, Address6), r.addDefaultRoute(index, unix.AF_INET6)); err != nil {
			return err
		}
	} else if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EACCES) {
		return err // otherwise IPv6 is missing or disabled
	}
	// A kernel without the setting reserves ports below 1024 for root.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	return nil
}
