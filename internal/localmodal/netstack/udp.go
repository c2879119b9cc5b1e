package netstack

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// flow is the traffic between a sandbox's UDP port and one destination.
type flow struct {
	inside, outside net.Conn
	used            atomic.Int64 // time of last use, in Unix nanoseconds
}

func (f *flow) close() {
	_ = f.inside.Close()
	_ = f.outside.Close()
}

// forwardUDP begins a flow. It runs on the goroutine that reads packets, so that the endpoint
// exists before the next packet. If it returns false, the stack sends an ICMP message.
func (n *Network) forwardUDP(request *udp.ForwarderRequest) bool {
	to := target(request.ID())
	addresses := n.destination(to)
	if len(addresses) == 0 {
		n.refuse(to, UDP, Refused)
		return false
	}
	if !n.begin() {
		return false
	}
	f := n.openFlow(request, addresses[0].String())
	if f == nil {
		n.tasks.Done()
		return false
	}
	go func() {
		defer n.tasks.Done()
		f.relay(n.ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.flows, f)
	}()
	return true
}

func (n *Network) openFlow(request *udp.ForwarderRequest, address string) *flow {
	outside, err := (&net.Dialer{}).DialContext(n.ctx, "udp", address) // immediate, since it sends nothing
	if err != nil {
		return nil
	}
	var queue waiter.Queue
	endpoint, failed := request.CreateEndpoint(&queue)
	if failed != nil {
		_ = outside.Close()
		return nil
	}
	f := &flow{inside: gonet.NewUDPConn(&queue, endpoint), outside: outside}
	f.touch()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.flows) >= maxFlows {
		n.evict()
	}
	n.flows[f] = struct{}{}
	return f
}

// evict closes the flow that has been idle for the longest time. The caller holds n.mu.
func (n *Network) evict() {
	var oldest *flow
	for f := range n.flows {
		if oldest == nil || f.used.Load() < oldest.used.Load() {
			oldest = f
		}
	}
	delete(n.flows, oldest)
	oldest.close()
}

func (f *flow) touch() { f.used.Store(time.Now().UnixNano()) }

// relay copies packets in both directions until ctx is done or the flow is idle.
func (f *flow) relay(ctx context.Context) {
	defer f.close()
	defer context.AfterFunc(ctx, f.close)()
	idle := time.AfterFunc(udpIdle, f.close)
	defer idle.Stop()
	copyPackets := func(to, from net.Conn) {
		chunk := chunks.Get().(*[]byte) // the pool contains only these
		defer chunks.Put(chunk)
		for {
			size, err := from.Read(*chunk)
			if err != nil {
				f.close() // the destination sent an ICMP message, or the flow is closed
				return
			}
			f.touch()
			idle.Reset(udpIdle)
			_, _ = to.Write((*chunk)[:size]) // packets may be lost
		}
	}
	var back sync.WaitGroup
	back.Go(func() { copyPackets(f.inside, f.outside) })
	copyPackets(f.outside, f.inside)
	back.Wait()
}
