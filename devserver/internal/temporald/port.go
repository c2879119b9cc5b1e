package temporald

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// checkPort returns an error if the port is not free now. Temporal and its UI end the process if
// they cannot listen, without a useful message.
func checkPort(ctx context.Context, ip netip.Addr, port int) error {
	listener, err := listen(ctx, ip, port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d on %s is already in use", port, ip)
	}
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	return listener.Close()
}

// freePorts returns n free ports that the kernel will not assign to another process in the next
// minute.
func freePorts(ctx context.Context, ip netip.Addr, n int) (ports []int, err error) {
	for range n {
		listener, listenErr := listen(ctx, ip, 0)
		if listenErr != nil {
			return nil, fmt.Errorf("find a free port on %s: %w", ip, listenErr)
		}
		// Kept open until all ports are found, so that no port is found twice.
		defer func() { err = errors.Join(err, listener.Close()) }()
		if err := linger(ctx, listener); err != nil {
			return nil, fmt.Errorf("reserve port %s: %w", listener.Addr(), err)
		}
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// linger leaves a connection to the listener in TIME_WAIT. The kernel then does not assign the port
// to listeners on port 0 or to outgoing connections, but a listener that requests this port gets
// it.
func linger(ctx context.Context, listener net.Listener) error {
	var dialer net.Dialer
	outer, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	inner, err := listener.Accept()
	if err != nil {
		return errors.Join(err, outer.Close())
	}
	// The side that closes first lingers.
	return errors.Join(inner.Close(), outer.Close())
}

func listen(ctx context.Context, ip netip.Addr, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
}
