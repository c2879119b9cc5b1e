package box

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// control is the host's end of a box's control socket: it matches responses with requests and exits
// with processes.
type control struct {
	conn *wire.Conn
	gone chan struct{}

	mu        sync.Mutex
	next      uint64
	ended     bool
	waiting   map[uint64]chan answer
	processes map[uint64]*Process
}

type answer struct {
	wire.Response
	files   []*os.File
	process *Process
}

// newControl starts reading. When the socket closes, it calls wait to reap the process, and then
// closes gone.
func newControl(conn *wire.Conn, wait func()) *control {
	c := &control{conn: conn, gone: make(chan struct{}), waiting: map[uint64]chan answer{}, processes: map[uint64]*Process{}}
	go func() {
		defer close(c.gone)
		c.read()
		wait()
		c.end()
	}()
	return c
}

func (c *control) read() {
	for {
		var response wire.Response
		files, err := c.conn.Receive(&response)
		if err != nil {
			return
		}
		c.deliver(answer{Response: response, files: files})
	}
}

func (c *control) deliver(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Op == wire.OpExited {
		if p := c.processes[a.ID]; p != nil {
			delete(c.processes, a.ID)
			p.end(a.Code, syscall.Signal(a.Signal))
		}
		return
	}
	if a.Op == wire.OpStarted { // must be known before its exit can arrive
		a.process = &Process{id: a.ID, control: c, done: make(chan struct{})}
		c.processes[a.ID] = a.process
	}
	if waiter := c.waiting[a.ID]; waiter != nil {
		delete(c.waiting, a.ID)
		waiter <- a
		return
	}
	wire.CloseAll(a.files)
}

func (c *control) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for id, p := range c.processes {
		delete(c.processes, id)
		p.end(0, syscall.SIGKILL)
	}
	for id, waiter := range c.waiting {
		delete(c.waiting, id)
		close(waiter)
	}
	_ = c.conn.Close()
}

// call sends a request and waits for its response, at most until the box ends. init limits how long
// it works on a request.
func (c *control) call(request wire.Request, files ...*os.File) (answer, error) {
	waiter := make(chan answer, 1) // deliver never waits
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return answer{}, ErrGone
	}
	c.next++
	request.ID = c.next
	c.waiting[request.ID] = waiter
	c.mu.Unlock()
	if err := c.conn.Send(request, files...); err != nil {
		c.mu.Lock()
		delete(c.waiting, request.ID)
		c.mu.Unlock()
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrClosed) {
			return answer{}, ErrGone
		}
		return answer{}, err
	}
	a, ok := <-waiter
	if !ok {
		return answer{}, ErrGone
	}
	if a.Op == wire.OpError {
		wire.CloseAll(a.files)
		return answer{}, &initError{a.Error, syscall.Errno(a.Errno)} // as sent by init
	}
	return a, nil
}
