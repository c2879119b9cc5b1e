package netdevice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// route is a routing socket, with the few requests that are needed here.
type route struct {
	fd       int
	sequence uint32
}

func dialRoute() (*route, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open routing socket: %w", err)
	}
	return &route{fd: fd}, nil
}

func (r *route) close() { _ = unix.Close(r.fd) }

// do sends a request and waits for the kernel's acknowledgement.
func (r *route) do(kind, flags uint16, body []byte) error {
	r.sequence++
	message := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	message = append(message, body...)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], kind)
	binary.NativeEndian.PutUint16(message[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(message[8:], r.sequence)
	if err := unix.Sendto(r.fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(r.fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
			return errors.New("unexpected answer from the kernel")
		}
		if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
			return unix.Errno(-code)
		}
		return nil
	}
}

// attribute appends an attribute to b.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%unix.RTA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

func number(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// link returns a struct ifinfomsg.
func link(index int, flags uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], flags) // mask of changes
	return b
}

// veth is an end of a veth pair to create.
type veth struct {
	name  string
	index int
}

// addVethTo creates an interface that is up, and its peer, which is down, in the namespace of a
// descriptor. Without ARP, both need the same address (see openVeth).
func (r *route) addVethTo(own, peer veth, namespace int) error {
	describe := func(end veth, flags uint32) []byte {
		b := attribute(link(end.index, flags|unix.IFF_NOARP), unix.IFLA_IFNAME, append([]byte(end.name), 0))
		return attribute(attribute(b, unix.IFLA_ADDRESS, vethAddress), unix.IFLA_MTU, number(MTU))
	}
	other := attribute(describe(peer, 0), unix.IFLA_NET_NS_FD, number(uint32(namespace)))
	info := attribute(nil, unix.IFLA_INFO_KIND, append([]byte("veth"), 0))
	info = attribute(info, unix.IFLA_INFO_DATA, attribute(nil, vethInfoPeer, other))
	return r.do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, attribute(describe(own, unix.IFF_UP), unix.IFLA_LINKINFO, info))
}

// setLink sets flags, and the MTU and the link address unless they are zero.
func (r *route) setLink(index, mtu int, flags uint32, address []byte) error {
	b := link(index, flags)
	if mtu > 0 {
		b = attribute(b, unix.IFLA_MTU, number(uint32(mtu)))
	}
	if address != nil {
		b = attribute(b, unix.IFLA_ADDRESS, address)
	}
	if err := r.do(unix.RTM_NEWLINK, 0, b); err != nil {
		return fmt.Errorf("set up interface: %w", err)
	}
	return nil
}

// vethInfoPeer is VETH_INFO_PEER.
const vethInfoPeer = 1

func (r *route) addVeth(name, peer string) error {
	other := attribute(link(0, 0), unix.IFLA_IFNAME, append([]byte(peer), 0))
	info := attribute(nil, unix.IFLA_INFO_KIND, append([]byte("veth"), 0))
	info = attribute(info, unix.IFLA_INFO_DATA, attribute(nil, vethInfoPeer, other))
	b := attribute(link(0, 0), unix.IFLA_IFNAME, append([]byte(name), 0))
	return r.do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, attribute(b, unix.IFLA_LINKINFO, info))
}

func (r *route) addAddress(index int, address netip.Addr) error {
	family := byte(unix.AF_INET)
	if address.Is6() {
		family = unix.AF_INET6
	}
	// struct ifaddrmsg. Only IPv6 detects duplicates, which do not exist here.
	b := []byte{family, byte(address.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	b = append(b, number(uint32(index))...)
	b = attribute(attribute(b, unix.IFA_LOCAL, address.AsSlice()), unix.IFA_ADDRESS, address.AsSlice())
	if err := r.do(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("add address %s: %w", address, err)
	}
	return nil
}

// addDefaultRoute routes all packets to the interface. There is no neighbor to address.
func (r *route) addDefaultRoute(index int, family byte) error {
	scope := byte(unix.RT_SCOPE_LINK)
	if family == unix.AF_INET6 {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	b := []byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, unix.RTN_UNICAST, 0, 0, 0, 0} // struct rtmsg
	b = attribute(b, unix.RTA_OIF, number(uint32(index)))
	if err := r.do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

// addHostRoute routes packets for one IPv4 address to an interface. from is the source address of
// connections.
func (r *route) addHostRoute(index int, table byte, to, from netip.Addr) error {
	b := []byte{unix.AF_INET, 32, 0, 0, table, unix.RTPROT_STATIC, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0} // struct rtmsg
	b = attribute(b, unix.RTA_DST, to.AsSlice())
	b = attribute(b, unix.RTA_OIF, number(uint32(index)))
	b = attribute(b, unix.RTA_PREFSRC, from.AsSlice())
	if err := r.do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("add route to %s: %w", to, err)
	}
	return nil
}

// rule returns the body of a request for the rule that routes TCP packets for a port of an address
// through a table.
func rule(table byte, to netip.Addr, port uint16) []byte {
	b := []byte{unix.AF_INET, 32, 0, 0, table, 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0} // struct fib_rule_hdr
	b = attribute(b, unix.FRA_DST, to.AsSlice())
	b = attribute(b, unix.FRA_PRIORITY, number(uint32(table)))
	b = attribute(b, unix.FRA_IP_PROTO, []byte{unix.IPPROTO_TCP})
	ports := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, port), port)
	return attribute(b, unix.FRA_DPORT_RANGE, ports)
}

// addLocalRoute makes the kernel accept packets to an IPv6 address.
func (r *route) addLocalRoute(loopback int, address netip.Addr) error {
	b := []byte{unix.AF_INET6, 128, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_LOCAL, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_DST, address.AsSlice())
	b = attribute(b, unix.RTA_OIF, number(uint32(loopback)))
	if err := r.do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, b); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add local route: %w", err)
	}
	return nil
}

// interfaceIndex queries the namespace of the calling thread.
func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return 0, fmt.Errorf("find interface %s: %w", name, err)
	}
	return int(request.Uint32()), nil
}
