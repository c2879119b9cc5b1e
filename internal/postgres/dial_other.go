//go:build !linux

package postgres

import (
	"syscall"
	"time"
)

// limitUnacknowledged does nothing: the system's limit on unacknowledged data applies, and
// deadlines of calls bound how long a caller waits.
func limitUnacknowledged(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
