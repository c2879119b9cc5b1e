//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// limitUnacknowledged leaves the limit on unacknowledged data to the system; deadlines of calls
// bound what a caller waits.
func limitUnacknowledged(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
