package postgres

import (
	"net"
	"time"
)

// keepAliveProbes is how many keepalives in a row go unanswered before a connection is broken.
const keepAliveProbes = 3

// keepAlive splits UnansweredTimeout into the silence before the first keepalive and the pause
// between two, both at least a second, which is the unit of the socket option.
func (o Options) keepAlive() (idle, interval time.Duration) {
	interval = max(time.Second, o.UnansweredTimeout/(keepAliveProbes+2)).Truncate(time.Second)
	return max(time.Second, o.UnansweredTimeout-keepAliveProbes*interval), interval
}

// dialer returns a dialer whose connections break when the server stops answering: while the client
// waits for a result by keepalives, while it sends by the limit on unacknowledged data. Without
// them a server that vanished without a reset holds a connection for 15 minutes.
func (o Options) dialer() *net.Dialer {
	idle, interval := o.keepAlive()
	return &net.Dialer{
		Timeout:         o.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: keepAliveProbes},
		Control:         limitUnacknowledged(o.UnansweredTimeout),
	}
}
