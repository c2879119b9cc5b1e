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

// maxPacket is the size of the largest packet with offload, without its headers.
const maxPacket = 1 << 16

// Fields and values of struct virtio_net_hdr.
const (
	vnetNeedsChecksum = 1 // flags
	vnetTCP4          = 1 // gso_type
	vnetTCP6          = 4
)

// endpoint is the stack's end of a device. Methods that it does not define itself, such as that for
// its empty link address, are those of a channel endpoint.
type endpoint struct {
	*channel.Endpoint

	device  *netdevice.Device
	reader  sync.WaitGroup
	buffers sync.Pool
	// dispatcher receives packets; nil until the endpoint is attached.
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	// writing is held for reading while a packet is written. The sandbox's kernel responds within
	// that call, and the connection's own endpoint is locked until it returns: a processor of the
	// stack that gets the response earlier would spin on the lock.
	writing sync.RWMutex
}

func newEndpoint(device *netdevice.Device) *endpoint {
	return &endpoint{
		Endpoint: channel.New(0, netdevice.MTU, ""), device: device,
		buffers: sync.Pool{New: func() any { return new(make([]byte, 0, maxPacket+netdevice.VirtioHeader+netdevice.EthernetHeader)) }},
	}
}

// Wait returns when reading has ended.
func (e *endpoint) Wait() { e.reader.Wait() }

// IsAttached reports whether packets are read.
func (e *endpoint) IsAttached() bool { return e.dispatcher.Load() != nil }

// GSOMaxSize is the size of the largest segment that is passed to the kernel.
func (e *endpoint) GSOMaxSize() uint32 { return maxPacket - header.IPv6MinimumSize }

// SupportedGSO declares that the kernel splits segments.
func (e *endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// Capabilities declares that checksums need no verification, since packets never cross a physical
// link.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// Attach starts reading. The stack detaches, with nil, under a lock that the reader may need, so
// reading only ends when the device is closed.
func (e *endpoint) Attach(dispatcher stack.NetworkDispatcher) {
	if dispatcher != nil {
		e.dispatcher.Store(&dispatcher)
		e.reader.Go(e.read)
	}
}

func (e *endpoint) read() {
	dispatcher := *e.dispatcher.Load()
	ahead := netdevice.VirtioHeader + len(e.device.Header)
	b := make([]byte, maxPacket+ahead)
	for {
		n, err := e.device.File.Read(b)
		if errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENETDOWN) {
			continue // packets were lost, or the interface is down
		}
		if err != nil {
			return // closed, or the interface was deleted
		}
		packet := b[min(ahead, n):n]
		protocol, ok := accept(packet)
		if !ok {
			continue
		}
		e.awaitWrites()
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		dispatcher.DeliverNetworkPacket(protocol, pkt)
		pkt.DecRef()
	}
}

// awaitWrites returns when the writes in progress have ended.
func (e *endpoint) awaitWrites() {
	e.writing.Lock()
	defer e.writing.Unlock()
}

// accept returns the protocol of a packet that the stack may process. The stack would answer an
// echo request to any address, and does not need multicasts.
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
		// Only TCP and UDP without extension headers: other packets have no destination here.
		next := tcpip.TransportProtocolNumber(ip.NextHeader())
		return header.IPv6ProtocolNumber, next == header.TCPProtocolNumber || next == header.UDPProtocolNumber
	default:
		return 0, false
	}
}

// WritePackets sends packets to the sandbox.
func (e *endpoint) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	b := e.buffers.Get().(*[]byte) // the pool contains only these
	defer e.buffers.Put(b)
	e.writing.RLock()
	defer e.writing.RUnlock()
	for i, packet := range packets.AsSlice() {
		out := (*b)[:netdevice.VirtioHeader]
		clear(out)
		e.describe(out, packet)
		if ethernet := len(e.device.Header); ethernet > 0 {
			out = append(out, e.device.Header...)
			binary.BigEndian.PutUint16(out[len(out)-2:], uint16(packet.NetworkProtocolNumber))
		}
		for _, part := range packet.AsSlices() {
			out = append(out, part...)
		}
		_, err := e.device.File.Write(out)
		if errors.Is(err, os.ErrClosed) {
			return i, &tcpip.ErrAborted{}
		}
		// A packet that the kernel does not accept is lost, like on a physical link.
	}
	return packets.Len(), nil
}

// describe fills in the virtio header of a packet.
func (e *endpoint) describe(virtio []byte, packet *stack.PacketBuffer) {
	gso := packet.GSOOptions
	if gso.Type == stack.GSONone {
		return
	}
	ethernet := uint16(len(e.device.Header))
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
		binary.NativeEndian.PutUint16(virtio[2:], uint16(packet.HeaderSize())+ethernet)
		binary.NativeEndian.PutUint16(virtio[4:], gso.MSS)
	}
}
