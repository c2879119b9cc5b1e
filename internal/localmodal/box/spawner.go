package box

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts processes from one operating system thread that lives as long
// as it does. The parent-death signal is sent when the *thread* that forked ends,
// and Go ends threads at will.
type spawner struct {
	requests chan spawnRequest
	stopped  chan struct{}
	once     sync.Once
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), stopped: make(chan struct{})}
	go func() {
		defer close(s.stopped)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

// start is cmd.Start on the lasting thread. It must not be called after close.
func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	s.requests <- r
	return <-r.done
}

// close ends the thread, and with it whatever it started.
func (s *spawner) close() {
	s.once.Do(func() { close(s.requests) })
	<-s.stopped
}
