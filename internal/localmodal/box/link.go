package box

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// link is the host's end of a box's control socket: it matches answers with
// requests and exits with processes.
type link struct {
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

// newLink starts reading. When the socket ends, wait is called to collect the
// process, and then gone is closed.
func newLink(conn *wire.Conn, wait func()) *link {
	l := &link{conn: conn, gone: make(chan struct{}), waiting: map[uint64]chan answer{}, processes: map[uint64]*Process{}}
	go func() {
		defer close(l.gone)
		l.read()
		wait()
		l.end()
	}()
	return l
}

func (l *link) read() {
	for {
		var response wire.Response
		files, err := l.conn.Receive(&response)
		if err != nil {
			return
		}
		l.deliver(answer{Response: response, files: files})
	}
}

func (l *link) deliver(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Op == wire.OpExited {
		if p := l.processes[a.ID]; p != nil {
			delete(l.processes, a.ID)
			p.end(a.Code, syscall.Signal(a.Signal))
		}
		return
	}
	if a.Op == wire.OpStarted { // known before its exit can arrive
		a.process = &Process{id: a.ID, link: l, done: make(chan struct{})}
		l.processes[a.ID] = a.process
	}
	if waiter := l.waiting[a.ID]; waiter != nil {
		delete(l.waiting, a.ID)
		waiter <- a
		return
	}
	wire.CloseAll(a.files)
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for id, p := range l.processes {
		delete(l.processes, id)
		p.end(0, syscall.SIGKILL)
	}
	for id, waiter := range l.waiting {
		delete(l.waiting, id)
		close(waiter)
	}
	_ = l.conn.Close()
}

// call sends a request and waits for its answer. It ends at the latest when the
// box does: init bounds what it does on its own.
func (l *link) call(request wire.Request, files ...*os.File) (answer, error) {
	waiter := make(chan answer, 1) // deliver never waits
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return answer{}, ErrGone
	}
	l.next++
	request.ID = l.next
	l.waiting[request.ID] = waiter
	l.mu.Unlock()
	if err := l.conn.Send(request, files...); err != nil {
		l.mu.Lock()
		delete(l.waiting, request.ID)
		l.mu.Unlock()
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
		return answer{}, &initError{a.Error, syscall.Errno(a.Errno)} //nolint:gosec // as init sent it
	}
	return a, nil
}
