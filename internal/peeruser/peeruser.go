// Package peeruser finds the user of the process at the other end of a connection within this machine.
//
// Every user of the machine can connect to a listener on loopback. With this package, a server
// without a password can restrict itself to some of them. The owner of the peer's socket is read
// from the kernel with sock_diag or, without it, from /proc/net/tcp.
//
// The owner of a socket is the user who created it, even if another one uses it now. A socket that its process has
// closed has no owner, so the connection is refused: the kernel reports such sockets as root's.
package peeruser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// all is the name for every user in a list of users.
const all = "all"

// errGone reports that no process has the peer's socket open.
var errGone = errors.New("the process that made the connection has closed it")

// ForeignError reports a connection of a user that is not admitted.
type ForeignError struct{ ID int }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the connection belongs to user %d of this machine", e.ID)
}

// Users are the users that may connect. The zero value admits none.
type Users struct {
	all bool
	ids []int
}

// Parse returns the user of this process, root, and the users in a comma-separated list of names and ids.
// "all" admits every user.
func Parse(list string) (Users, error) {
	u := Users{ids: []int{os.Geteuid(), 0}}
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
			continue
		case all:
			u.all = true
			continue
		}
		id, err := strconv.Atoi(name)
		if err != nil {
			known, err := user.Lookup(name)
			if err != nil {
				return Users{}, fmt.Errorf("user %q is unknown on this machine", name)
			}
			if id, err = strconv.Atoi(known.Uid); err != nil {
				return Users{}, fmt.Errorf("user %q has the id %q: must be a number", name, known.Uid)
			}
		}
		if id < 0 {
			return Users{}, fmt.Errorf("user id %d: must not be negative", id)
		}
		u.ids = append(u.ids, id)
	}
	return u, nil
}

// All reports whether every user is admitted.
func (u Users) All() bool { return u.all }

// Check returns nil if the user at the other end of a TCP connection is admitted; local is this end
// of the connection, remote the other. It returns *ForeignError for another user, and another error
// if no process of this machine has the other end open.
func (u Users) Check(local, remote net.Addr) error {
	if u.all {
		return nil
	}
	id, err := find(local, remote)
	if err != nil {
		return err
	}
	if !slices.Contains(u.ids, id) {
		return &ForeignError{ID: id}
	}
	return nil
}

// Works returns nil if Check can distinguish users on this machine.
func Works(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close() // nothing is lost
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close() // nothing is lost
	id, err := find(conn.RemoteAddr(), conn.LocalAddr())
	if err != nil {
		return err
	}
	if id != os.Geteuid() {
		return fmt.Errorf("a connection of user %d is shown as one of user %d", os.Geteuid(), id)
	}
	return nil
}

// addrPort returns the address of one end of a TCP connection.
func addrPort(a net.Addr) (netip.AddrPort, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%v is not an address of TCP", a)
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port()), nil
}

// find returns the user of the process that has the other end of a connection.
func find(local, remote net.Addr) (int, error) {
	here, err := addrPort(local)
	if err != nil {
		return 0, err
	}
	there, err := addrPort(remote)
	if err != nil {
		return 0, err
	}
	return owner(there, here)
}
