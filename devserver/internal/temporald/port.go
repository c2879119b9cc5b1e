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

// checkPort returns an error when nobody could listen on the port now. Temporal and its UI end the
// process when they cannot, without a word that a user could act on.
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

// freePorts returns n ports that nobody listened on a moment ago.
func freePorts(ctx context.Context, ip netip.Addr, n int) (ports []int, err error) {
	for range n {
		listener, err := listen(ctx, ip, 0)
		if err != nil {
			return nil, fmt.Errorf("find a free port on %s: %w", ip, err)
		}
		// Held until all are found, so that no port is found twice.
		defer func() { err = errors.Join(err, listener.Close()) }()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func listen(ctx context.Context, ip netip.Addr, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
}
