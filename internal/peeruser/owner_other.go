//go:build !linux

package peeruser

import (
	"errors"
	"net/netip"
)

// owner is not supported on other systems.
func owner(netip.AddrPort, netip.AddrPort) (int, error) {
	return 0, errors.New("the users of connections are known on Linux only")
}
