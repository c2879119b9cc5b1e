package api

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

const (
	// ownDescriptors is the number of descriptors that are reserved for the database, Temporal and
	// files.
	ownDescriptors = 256
	// maxConnections bounds connections even if the process may have more descriptors.
	maxConnections = 100_000
)

// defaultConnections derives the limit from the process's limit of descriptors.
func defaultConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > maxConnections {
		return maxConnections
	}
	files := int(limit.Cur)
	return max(files-ownDescriptors, files/2, 1)
}

// connections bounds the open connections of a server. If there is no room for a new connection,
// the connection that has waited longest for a request is closed, so that clients that connect and
// send no data, or send it slowly, make room for others. Event streams leave a quarter of the
// connections to other requests.
type connections struct {
	limit int

	mu      sync.Mutex
	open    int
	streams int
	waiting *list.List // connections without a request, the one that has waited longest first
	places  map[net.Conn]*list.Element
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, waiting: list.New(), places: map[net.Conn]*list.Element{}}
}

// changed is the http.Server's ConnState. A connection counts as waiting until its request can be
// served, so StateActive, which its first byte causes, is ignored.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
		c.wait(conn)
		if c.open > c.limit {
			oldest := c.waiting.Front().Value.(net.Conn) // it only contains connections
			c.serve(oldest)                              // so that it is not selected again for the next connection
			_ = oldest.Close()
		}
	case http.StateIdle:
		c.wait(conn)
	case http.StateClosed:
		c.open--
		c.serve(conn)
	case http.StateHijacked:
		c.serve(conn) // counts as open until released is called
	case http.StateActive:
	}
}

func (c *connections) wait(conn net.Conn) {
	c.serve(conn)
	c.places[conn] = c.waiting.PushBack(conn)
}

// serve removes a connection from the waiting ones.
func (c *connections) serve(conn net.Conn) {
	if place := c.places[conn]; place != nil {
		c.waiting.Remove(place)
		delete(c.places, conn)
	}
}

// requested records that the connection of a context has a request.
func (c *connections) requested(ctx context.Context) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return // the server is used as an http.Handler
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serve(conn)
}

// released records that a hijacked connection has been closed.
func (c *connections) released() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// beginStream reserves a connection for an event stream. The caller must call endStream afterwards.
func (c *connections) beginStream() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := max(c.limit*3/4, 1)
	if c.streams >= most {
		return failure.Errorf(failure.Unavailable, "the server has %d open event streams, which is its limit; connect again later", most)
	}
	c.streams++
	return nil
}

func (c *connections) endStream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams--
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}
