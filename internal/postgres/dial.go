package postgres

import (
	"net"
	"time"
)

// keepAliveProbes is the number of consecutive unanswered keepalives after which a connection
// counts as broken.
const keepAliveProbes = 3

// keepAlive splits UnansweredTimeout into the idle time before the first keepalive and the interval
// between two. Both are at least a second, the unit of the socket option.
func (o Options) keepAlive() (idle, interval time.Duration) {
	interval = max(time.Second, o.UnansweredTimeout/(keepAliveProbes+2)).Truncate(time.Second)
	return max(time.Second, o.UnansweredTimeout-keepAliveProbes*interval), interval
}

// dialer returns a dialer whose connections break when the server stops responding: keepalives
// detect that while the client waits for a result, the limit on unacknowledged data while it sends.
// Without them a connection to a server that vanished without a reset would hang for 15 minutes.
func (o Options) dialer() *net.Dialer {
	idle, interval := o.keepAlive()
	return &net.Dialer{
		Timeout:         o.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: keepAliveProbes},
		Control:         limitUnacknowledged(o.UnansweredTimeout),
	}
}
