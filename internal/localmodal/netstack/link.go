package netstack

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// maxPacket is the largest packet with offload, without what precedes it.
const maxPacket = 1 << 16

// Fields and values of struct virtio_net_hdr.
const (
	vnetNeedsChecksum = 1 // flags
	vnetTCP4          = 1 // gso_type
	vnetTCP6          = 4
)

// link is the stack's end of a device. What it does not define itself, such as its
// empty link address, is that of a channel.
type link struct {
	*channel.Endpoint

	device  *netdevice.Device
	reader  sync.WaitGroup
	buffers sync.Pool
	// dispatcher is where packets go; nil until the link is attached.
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	// writing is held for reading while a packet is written. The sandbox's kernel answers within that call, and the
	// endpoint is locked until it returns: a processor of the stack that is given the answer earlier spins on the lock.
	writing sync.RWMutex
}

func newLink(device *netdevice.Device) *link {
	return &link{
		Endpoint: channel.New(0, netdevice.MTU, ""), device: device,
		buffers: sync.Pool{New: func() any { return new(make([]byte, 0, maxPacket+netdevice.VirtioHeader+netdevice.EthernetHeader)) }},
	}
}

// Wait returns when reading has ended.
func (l *link) Wait() { l.reader.Wait() }

// IsAttached reports whether packets are read.
func (l *link) IsAttached() bool { return l.dispatcher.Load() != nil }

// GSOMaxSize is the size of the largest segment that is handed to the kernel.
func (l *link) GSOMaxSize() uint32 { return maxPacket - header.IPv6MinimumSize }

// SupportedGSO says that the kernel splits segments.
func (l *link) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// Capabilities says that checksums need not be verified: packets never were on a wire.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// Attach starts to read. The stack detaches, with nil, under a lock that the reader
// may want: reading ends when the device is closed.
func (l *link) Attach(dispatcher stack.NetworkDispatcher) {
	if dispatcher != nil {
		l.dispatcher.Store(&dispatcher)
		l.reader.Go(l.read)
	}
}

func (l *link) read() {
	dispatcher := *l.dispatcher.Load()
	ahead := netdevice.VirtioHeader + len(l.device.Header)
	b := make([]byte, maxPacket+ahead)
	for {
		n, err := l.device.File.Read(b)
		if errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENETDOWN) {
			continue // packets were lost; an interface that is down has none
		}
		if err != nil {
			return // closed, or the interface was deleted
		}
		packet := b[min(ahead, n):n]
		protocol, ok := accept(packet)
		if !ok {
			continue
		}
		l.awaitWrites()
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		dispatcher.DeliverNetworkPacket(protocol, pkt)
		pkt.DecRef()
	}
}

// awaitWrites returns when the writes that are under way have ended.
func (l *link) awaitWrites() {
	l.writing.Lock()
	defer l.writing.Unlock()
}

// accept returns the protocol of a packet that the stack may see. It would answer an
// echo request to any address, and has no use for multicasts.
func accept(packet []byte) (tcpip.NetworkProtocolNumber, bool) {
	if len(packet) == 0 {
		return 0, false
	}
	switch packet[0] >> 4 {
	case header.IPv4Version:
		ip := header.IPv4(packet)
		if len(ip) < header.IPv4MinimumSize || ip.DestinationAddress() != gateway && header.IsV4MulticastAddress(ip.DestinationAddress()) {
			return 0, false
		}
		return header.IPv4ProtocolNumber, ip.Protocol() != uint8(header.ICMPv4ProtocolNumber) || ip.DestinationAddress() == gateway
	case header.IPv6Version:
		ip := header.IPv6(packet)
		if len(ip) < header.IPv6MinimumSize || header.IsV6MulticastAddress(ip.DestinationAddress()) {
			return 0, false
		}
		// Only TCP and UDP without extension headers: anything else has no destination here.
		next := tcpip.TransportProtocolNumber(ip.NextHeader())
		return header.IPv6ProtocolNumber, next == header.TCPProtocolNumber || next == header.UDPProtocolNumber
	default:
		return 0, false
	}
}

// WritePackets sends packets to the sandbox.
func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	b := l.buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool holds nothing else
	defer l.buffers.Put(b)
	l.writing.RLock()
	defer l.writing.RUnlock()
	for i, packet := range packets.AsSlice() {
		out := (*b)[:netdevice.VirtioHeader]
		clear(out)
		l.describe(out, packet)
		if ethernet := len(l.device.Header); ethernet > 0 {
			out = append(out, l.device.Header...)
			binary.BigEndian.PutUint16(out[len(out)-2:], uint16(packet.NetworkProtocolNumber)) //nolint:gosec // a protocol has 16 bits
		}
		for _, part := range packet.AsSlices() {
			out = append(out, part...)
		}
		_, err := l.device.File.Write(out)
		if errors.Is(err, os.ErrClosed) {
			return i, &tcpip.ErrAborted{}
		}
		// A packet that the kernel does not take is lost, as on any wire.
	}
	return packets.Len(), nil
}

// describe fills in the virtio header of a packet.
func (l *link) describe(virtio []byte, packet *stack.PacketBuffer) {
	gso := packet.GSOOptions
	if gso.Type == stack.GSONone {
		return
	}
	ethernet := uint16(len(l.device.Header)) //nolint:gosec // 14
	if gso.NeedsCsum {
		virtio[0] = vnetNeedsChecksum
		binary.NativeEndian.PutUint16(virtio[6:], gso.L3HdrLen+ethernet)
		binary.NativeEndian.PutUint16(virtio[8:], gso.CsumOffset)
	}
	if packet.Data().Size() > int(gso.MSS) {
		virtio[1] = vnetTCP4
		if gso.Type == stack.GSOTCPv6 {
			virtio[1] = vnetTCP6
		}
		binary.NativeEndian.PutUint16(virtio[2:], uint16(packet.HeaderSize())+ethernet) //nolint:gosec // headers of one packet
		binary.NativeEndian.PutUint16(virtio[4:], gso.MSS)
	}
}
