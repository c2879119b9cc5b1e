package demoagent

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/rawio"
)

// sleeper waits with a kernel timer, which the process polls in the same way as its input. With a
// timer of the Go runtime, the monitor thread wakes too, and the process wakes up to a millisecond
// early and waits again. The timers of a hundred agents that print a word occasionally would then
// cause considerable load.
type sleeper struct {
	timer   *os.File
	expired io.Reader
}

// newSleeper returns a sleeper; without timers of the kernel, it uses those of the runtime.
func newSleeper() *sleeper {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &sleeper{}
	}
	f := os.NewFile(uintptr(fd), "timer")
	return &sleeper{timer: f, expired: rawio.NewReader(f)}
}

// sleep waits for d, which is positive. It returns false if ctx ends first.
func (s *sleeper) sleep(ctx context.Context, d time.Duration) bool {
	if s.timer == nil || !s.set(d) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
	aborted := make(chan struct{})
	abort := context.AfterFunc(ctx, func() {
		defer close(aborted)
		_ = s.timer.SetReadDeadline(time.Unix(1, 0))
	})
	var times [8]byte
	_, _ = s.expired.Read(times[:]) // returns when the timer has expired or ctx has ended
	if !abort() {
		<-aborted // its deadline must not end the next sleep
		return false
	}
	return true
}

// set starts the timer and reports whether it could.
func (s *sleeper) set(d time.Duration) bool {
	conn, err := s.timer.SyscallConn()
	if err != nil || s.timer.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}, nil)
	})
	return err == nil && failed == nil
}

func (s *sleeper) close() {
	if s.timer != nil {
		_ = s.timer.Close()
	}
}
