package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts processes from one thread that lives as long as the spawner: the kernel sends a
// parent-death signal when the thread that started the process ends, and the Go runtime may end
// threads at any time.
type spawner struct {
	requests chan spawnRequest
	done     sync.WaitGroup
}

type spawnRequest struct {
	cmd   *exec.Cmd
	reply chan error // one value
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	s.done.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for r := range s.requests {
			r.reply <- r.cmd.Start()
		}
	})
	return s
}

// start runs cmd.Start on the spawner's thread.
func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, reply: make(chan error, 1)}
	s.requests <- r
	return <-r.reply
}

// close ends the thread, and with it every remaining process. No start may follow.
func (s *spawner) close() {
	close(s.requests)
	s.done.Wait()
}
