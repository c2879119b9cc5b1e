package api

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"sync"
)

// corkBytes is the size of the buffer of a corked connection.
const corkBytes = 16 << 10

// corkBuffers pools the buffers, because few connections are corked at any time.
var corkBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// corkedConn buffers writes to a connection while it is corked. Messages of a WebSocket are mostly
// under 200 bytes, and the library writes each one separately. Without corking, a reader that
// catches up would cost a system call for each event.
type corkedConn struct {
	net.Conn
	mu   sync.Mutex
	held *bytes.Buffer // nil while the connection is not corked
}

// Write writes p, or buffers it until the buffer is full or uncork is called. The error may come
// from an earlier write.
func (c *corkedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return c.Conn.Write(p)
	}
	c.held.Write(p)
	if c.held.Len() < corkBytes {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *corkedConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = corkBuffers.Get().(*bytes.Buffer)
	}
}

// uncork writes the buffered data. It may wait for the client.
func (c *corkedConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flush()
	corkBuffers.Put(c.held)
	c.held = nil
	return err
}

func (c *corkedConn) flush() error {
	defer c.held.Reset()
	if c.held.Len() == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held.Bytes())
	return err
}

// corkingWriter makes a handshake hijack its connection as a corkedConn.
type corkingWriter struct {
	http.ResponseWriter
	conn *corkedConn
}

func (w *corkingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &corkedConn{Conn: conn}
	buffered.Writer.Reset(w.conn) // no data was written to it yet
	return w.conn, buffered, nil
}
