package netstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// forwardTCP serves a connection of the sandbox, starting with its first packet.
func (n *Network) forwardTCP(request *tcp.ForwarderRequest) {
	to := target(request.ID())
	addresses := n.destination(to)
	if len(addresses) == 0 {
		n.refuse(to, TCP, Refused)
		request.Complete(true) // sends a reset; the refusal is recorded before
		return
	}
	if to.Addr() == netdevice.HostAddress {
		if p := n.host.port(to.Port()); p != nil {
			if !p.beginStacked() {
				request.Complete(false) // the packet was sent before the port was routed to its socket; the next attempt reaches it
				return
			}
			defer p.endStacked()
		}
	}
	if !n.beginConnection() {
		n.refuse(to, TCP, Limited)
		request.Complete(true)
		return
	}
	defer n.endConnection()
	outside, err := dialTCP(n.ctx, addresses)
	if err != nil {
		// Without a response, the sandbox gets no response either, and retries until its own
		// timeout.
		silent, ok := errors.AsType[net.Error](err)
		request.Complete(!ok || !silent.Timeout())
		return
	}
	var queue waiter.Queue
	endpoint, failed := request.CreateEndpoint(&queue)
	request.Complete(failed != nil)
	if failed != nil { // the sandbox has aborted the connection meanwhile
		_ = outside.Close()
		return
	}
	endpoint.SocketOptions().SetKeepAlive(true)
	pool := chunks
	if n.crowded() {
		pool = crowdedChunks
		endpoint.SocketOptions().SetReceiveBufferSize(crowdedBuffer, true)
		endpoint.SocketOptions().SetSendBufferSize(crowdedBuffer, true)
	}
	inside := gonet.NewTCPConn(&queue, endpoint)
	n.relay(inside, outside, endpoint.Abort, pool)
	_ = inside.Close()
	_ = outside.Close()
	awaitEnd(endpoint)
}

// dialTCP tries the addresses in order.
func dialTCP(ctx context.Context, addresses []netip.AddrPort) (_ *net.TCPConn, err error) {
	for _, address := range addresses {
		// DialTCP first binds the socket, even without an address. The kernel then searches for an
		// unused port, which takes milliseconds if thousands of connections have ended in the last
		// minute.
		var outside net.Conn
		if outside, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address.String()); err != nil {
			continue
		}
		tcp, ok := outside.(*net.TCPConn)
		if !ok {
			return nil, errors.Join(fmt.Errorf("dial %s: got a %T", address, outside), outside.Close())
		}
		return tcp, nil
	}
	return nil, err
}

// stream is a connection whose directions can be closed separately.
type stream interface {
	io.ReadWriter
	CloseWrite() error
}

// relay copies in both directions until both ends are closed, one fails, or the connection is idle
// for a long time. resetInside aborts the inner connection; pool provides the chunks.
func (n *Network) relay(inside stream, outside *net.TCPConn, resetInside func(), pool *sync.Pool) {
	abort := func() { // resets both connections
		resetInside()
		_ = outside.SetLinger(0)
		_ = outside.Close()
	}
	defer context.AfterFunc(n.ctx, abort)()
	idle := time.AfterFunc(tcpIdle, abort)
	defer idle.Stop()
	used := func() { idle.Reset(tcpIdle) }
	var back sync.WaitGroup
	back.Go(func() {
		if pump(inside, outside, used, pool) != nil {
			abort()
		}
	})
	if pump(outside, inside, used, pool) != nil {
		abort()
	}
	back.Wait()
}

// Buffers for copying; connections of a crowded network use smaller ones.
var (
	chunks        = &sync.Pool{New: func() any { return new(make([]byte, 64<<10)) }}
	crowdedChunks = &sync.Pool{New: func() any { return new(make([]byte, crowdedChunk)) }}
)

func takeChunk() *[]byte { return chunks.Get().(*[]byte) } // the pool contains only these

// pump copies in one direction and forwards the end of file.
func pump(to stream, from io.Reader, used func(), pool *sync.Pool) error {
	chunk := pool.Get().(*[]byte) // the pools contain only these
	defer pool.Put(chunk)
	for {
		size, err := from.Read(*chunk)
		if size > 0 {
			used()
			if _, err := to.Write((*chunk)[:size]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite() // fails if the other direction has closed the connection
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// awaitEnd returns when the endpoint has no data any more: the sandbox has acknowledged all of it,
// or its connection was reset because it did not.
func awaitEnd(endpoint tcpip.Endpoint) {
	closed := func() bool {
		state := tcp.EndpointState(endpoint.State())
		return state == tcp.StateClose || state == tcp.StateError
	}
	pause, deadline := time.Millisecond, time.Now().Add(lingering)
	for !closed() {
		if time.Now().After(deadline) {
			endpoint.Abort()
			return
		}
		<-time.After(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}
