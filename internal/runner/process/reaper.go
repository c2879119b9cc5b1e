package process

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper starts the runner's children and waits for all of them, including those that it inherits
// as subreaper. Nothing else in the process may wait for a child.
type Reaper struct {
	mu       sync.Mutex // held during fork, so that no child exits before it is registered
	children map[int]*child
	spawn    chan func()
	stop     chan struct{}
	done     sync.WaitGroup
}

// child is a process that the reaper has started.
type child struct {
	pid    int
	done   chan struct{} // closed when it has exited
	status unix.WaitStatus
}

// NewReaper starts a reaper. A process has at most one.
func NewReaper() *Reaper {
	r := &Reaper{children: map[int]*child{}, spawn: make(chan func()), stop: make(chan struct{})}
	ended := make(chan os.Signal, 1) // one pending signal is enough, because reap reaps all
	signal.Notify(ended, unix.SIGCHLD)
	r.done.Go(func() {
		defer signal.Stop(ended)
		// reap reaps all children that have exited, so a signal that was merged with another is not
		// missed. The ticker is for a signal that never came.
		net := time.NewTicker(time.Minute)
		defer net.Stop()
		for {
			select {
			case <-ended:
			case <-net.C:
			case <-r.stop:
				return
			}
			r.reap()
		}
	})
	// A child's parent-death signal fires when the thread that forked it exits. Therefore one
	// thread forks all children and lives until the process exits.
	r.done.Go(func() {
		runtime.LockOSThread()
		for {
			select {
			case f := <-r.spawn:
				f()
			case <-r.stop:
				return
			}
		}
	})
	return r
}

// start starts a process.
func (r *Reaper) start(path string, argv []string, attr *os.ProcAttr) (*child, error) {
	var c *child
	var err error
	started := make(chan struct{})
	r.spawn <- func() {
		defer close(started)
		r.mu.Lock()
		defer r.mu.Unlock()
		var p *os.Process
		if p, err = os.StartProcess(path, argv, attr); err != nil {
			return
		}
		c = &child{pid: p.Pid, done: make(chan struct{})}
		r.children[c.pid] = c
		_ = p.Release() // the reaper waits by pid
	}
	<-started
	return c, err
}

// reap reaps every child that has exited and reports whether no child is left.
func (r *Reaper) reap() (childless bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return errors.Is(err, unix.ECHILD)
		}
		if c := r.children[pid]; c != nil {
			delete(r.children, pid)
			c.status = status
			close(c.done)
		}
	}
}

// Look reaps the children that have exited so far. A signal triggers that as well, but a moment
// later, and input that is written to a dead process before then is lost.
func (r *Reaper) Look() { r.reap() }

// Close stops the reaper. It does not wait for running children.
func (r *Reaper) Close() {
	close(r.stop)
	r.done.Wait()
}
