package devstack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"syscall"
)

const loopback = "127.0.0.1"

// Free ports are chosen below the range that kernels assign to outgoing connections. In that range,
// a client that retries while its server is down could connect to itself and keep the port.
const (
	firstFreePort = 20000
	freePortCount = 10000
)

// portChooser assigns ports, each once, until it is closed. Several stacks of a machine may start
// at the same time, and a part listens only some seconds after its port was chosen. A chooser
// therefore reserves its ports until it is closed.
type portChooser struct {
	taken    map[int]bool
	reserved []net.Listener
}

func newPortChooser() *portChooser { return &portChooser{taken: make(map[int]bool)} }

func (c *portChooser) close() {
	for _, l := range c.reserved {
		_ = l.Close() // a socket without a file
	}
}

// reserve reports whether no other chooser of this machine has reserved the port. The reservation
// is a socket in Linux's abstract namespace, which always ends with the process. On other systems
// there are no reservations.
func (c *portChooser) reserve(ctx context.Context, port int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", fmt.Sprintf("@overwinter-port-%d", port))
	if err != nil {
		return false
	}
	c.reserved = append(c.reserved, listener)
	return true
}

// choose returns the wanted port of the host if it is free, or finds one if wanted is 0. Its errors
// name the flag.
func (c *portChooser) choose(ctx context.Context, host string, wanted, preferred int, flag string) (int, error) {
	if wanted == 0 {
		return c.free(ctx, host, preferred)
	}
	if c.taken[wanted] {
		return 0, fmt.Errorf("port %d is configured twice: choose another with %s", wanted, flag)
	}
	c.taken[wanted] = true
	err := tryListen(ctx, host, wanted)
	switch {
	case err == nil:
		return wanted, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return 0, fmt.Errorf("port %d is already in use: stop what uses it, or choose another with %s", wanted, flag)
	case errors.Is(err, syscall.EACCES):
		return 0, fmt.Errorf("port %d may not be used by this user: choose another with %s", wanted, flag)
	default:
		return 0, fmt.Errorf("%s: %w", flag, err)
	}
}

// free returns the preferred port if it is free, else another free one.
func (c *portChooser) free(ctx context.Context, host string, preferred int) (int, error) {
	start := rand.IntN(freePortCount)
	for i := range freePortCount + 1 {
		port := preferred
		if i > 0 {
			port = firstFreePort + (start+i)%freePortCount
		}
		if port != 0 && !c.taken[port] && c.reserve(ctx, port) && tryListen(ctx, host, port) == nil {
			c.taken[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port between %d and %d is free", firstFreePort, firstFreePort+freePortCount-1)
}

func tryListen(ctx context.Context, host string, port int) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return listener.Close()
}

func loopbackAddress(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
