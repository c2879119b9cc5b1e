package box

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts processes from one operating system thread that lives as long as the spawner. The
// kernel sends the parent-death signal when the *thread* that forked ends, and Go may end other
// threads at any time.
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

// start is cmd.Start on the spawner's thread. It must not be called after close.
func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	s.requests <- r
	return <-r.done
}

// close ends the thread, and thereby all processes that it started.
func (s *spawner) close() {
	s.once.Do(func() { close(s.requests) })
	<-s.stopped
}
