package boxinit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const dialTimeout = 10 * time.Second

// dial connects inside the sandbox's network namespace; the host uses the descriptor.
func dial(address string) (*os.File, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("dial %s: got a %T", address, conn), conn.Close())
	}
	f, err := tcp.File()
	if err := errors.Join(err, tcp.Close()); err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return f, nil
}
