// Package porttest finds ports for the servers that tests start.
package porttest

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
)

// Ports below the range that the kernel assigns, for example to outgoing connections.
const (
	first = 10_000
	count = 20_000
)

// given has the ports that this process has returned.
var given sync.Map

// Free returns a port of 127.0.0.1 that was free a moment ago, and each port once.
//
// It binds a socket without listening. A program that another test starts at that moment holds a
// copy of the socket until exec; a copy of a listening socket would keep the port in use after this
// function has closed its own.
func Free(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(count)
		if _, again := given.LoadOrStore(port, true); !again && isFree(port) {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// isFree reports whether no socket listens on the port.
func isFree(port int) bool {
	syscall.ForkLock.RLock() // until programs that are starting have closed the socket
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(s)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return false
	}
	defer syscall.Close(s) // nothing was written
	// Servers set this option too, so only listening sockets conflict.
	if err := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return false
	}
	return syscall.Bind(s, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}
