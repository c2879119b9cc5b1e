package peeruser

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// See linux/inet_diag.h.
const (
	headerSize  = unix.SizeofNlMsghdr
	requestSize = 56 // struct inet_diag_req_v2
	messageSize = 72 // struct inet_diag_msg
	diagTimeout = 2 * time.Second
)

// owner returns the user whose process has the socket with these addresses open.
func owner(local, remote netip.AddrPort) (int, error) {
	id, err := diagnose(local, remote)
	if err == nil || errors.Is(err, errGone) {
		return id, err
	}
	id, procErr := readTable(local, remote)
	if procErr != nil && !errors.Is(procErr, errGone) {
		return 0, fmt.Errorf("ask the kernel for the owner of a connection: %w; %w", err, procErr)
	}
	return id, procErr
}

// diagnose asks the kernel for one socket.
func diagnose(local, remote netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd) // nothing is lost
	timeout := unix.NsecToTimeval(int64(diagTimeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Sendto(fd, diagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(fd, answer, 0)
	}
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return diagAnswer(answer[:n], local, remote)
}

// diagRequest returns a message that queries one socket by its addresses.
func diagRequest(local, remote netip.AddrPort) []byte {
	b := make([]byte, headerSize+requestSize)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[headerSize:]
	r[0] = unix.AF_INET6
	if local.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	r[1] = unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in any state
	copy(r[8:], socketID(local, remote))
	copy(r[48:], slices.Repeat([]byte{0xff}, 8)) // no cookie
	return b
}

// socketID returns the beginning of struct inet_diag_sockid: ports and addresses.
func socketID(local, remote netip.AddrPort) []byte {
	b := make([]byte, 36)
	binary.BigEndian.PutUint16(b, local.Port())
	binary.BigEndian.PutUint16(b[2:], remote.Port())
	copy(b[4:20], local.Addr().AsSlice())
	copy(b[20:36], remote.Addr().AsSlice())
	return b
}

// diagAnswer returns the owner in the kernel's response. For a closed connection, the kernel may
// return a listener.
func diagAnswer(b []byte, local, remote netip.AddrPort) (int, error) {
	if len(b) < headerSize+4 {
		return 0, errors.New("the kernel's answer is too short")
	}
	switch kind := binary.NativeEndian.Uint16(b[4:]); kind {
	case unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b[headerSize:])))
		return 0, os.NewSyscallError("sock_diag", errno)
	case unix.SOCK_DIAG_BY_FAMILY:
	default:
		return 0, fmt.Errorf("the kernel's answer has the type %d", kind)
	}
	m := b[headerSize:]
	if len(m) < messageSize {
		return 0, errors.New("the kernel's answer is too short")
	}
	inode := binary.NativeEndian.Uint32(m[68:])
	if inode == 0 || binary.BigEndian.Uint16(m[4:]) != local.Port() || binary.BigEndian.Uint16(m[6:]) != remote.Port() {
		return 0, errGone
	}
	return int(binary.NativeEndian.Uint32(m[64:])), nil
}

// readTable looks for the socket in the tables of /proc. An IPv4 connection of a socket for IPv6 is in that for IPv6.
func readTable(local, remote netip.AddrPort) (int, error) {
	tables := []struct {
		file  string
		bytes func(netip.Addr) []byte
	}{
		{"/proc/net/tcp6", func(a netip.Addr) []byte { b := a.As16(); return b[:] }},
		{"/proc/net/tcp", func(a netip.Addr) []byte { b := a.As4(); return b[:] }},
	}
	if local.Addr().Is6() {
		tables = tables[:1]
	}
	var read error
	for _, t := range tables {
		name := func(p netip.AddrPort) string { return tableAddress(t.bytes(p.Addr())) + fmt.Sprintf(":%04X", p.Port()) }
		id, err := searchTable(t.file, name(local), name(remote))
		switch {
		case err == nil:
			return id, nil
		case errors.Is(err, os.ErrNotExist) && len(tables) > 1: // a kernel without IPv6
		case !errors.Is(err, errGone):
			read = err
		}
	}
	if read != nil {
		return 0, read
	}
	return 0, errGone
}

// tableAddress formats an address as /proc/net/tcp does: words of 32 bits in the machine's byte
// order.
func tableAddress(b []byte) string {
	out := make([]byte, 0, len(b))
	for ; len(b) >= 4; b = b[4:] {
		out = binary.BigEndian.AppendUint32(out, binary.NativeEndian.Uint32(b))
	}
	return strings.ToUpper(hex.EncodeToString(out))
}

func searchTable(file, local, remote string) (int, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close() // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[1] != local || fields[2] != remote {
			continue
		}
		if fields[9] == "0" { // closed by its process
			return 0, errGone
		}
		return strconv.Atoi(fields[7])
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errGone
}
