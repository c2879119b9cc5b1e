package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// ErrGone is the error of calls once the agent has closed one of its pipes.
var ErrGone = errors.New("the agent has exited")

// Message is a JSON-RPC 2.0 message: a request has Method and ID, a notification only Method, a
// response ID and either Result or Error.
type Message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *RPCError       `json:"error,omitempty"`
}

// IsRequest reports whether the message requires a response.
func (m Message) IsRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// IsResponse reports whether m responds to a call.
func (m Message) IsResponse() bool { return m.Method == "" && len(m.ID) > 0 }

// RPCError is a JSON-RPC error.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error returns the message with its code.
func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Error codes.
const (
	CodeMethodNotFound = -32601
	CodeInternal       = -32603
)

// Peer speaks JSON-RPC 2.0 with an agent, one message per line. Its methods are safe for concurrent
// use.
//
// The ids of its requests are "<method>#<n>", so that the agent's lines alone show which request a
// response belongs to.
type Peer struct {
	// Bare omits "jsonrpc":"2.0", for agents that omit it too.
	Bare bool

	w       io.Writer
	writing sync.Mutex

	mu      sync.Mutex
	last    int
	waiting map[string]chan Message // by id; each has room for the only response
	gone    bool
}

// NewPeer returns a Peer that writes to w, the agent's stdin.
func NewPeer(w io.Writer) *Peer { return &Peer{w: w, waiting: map[string]chan Message{}} }

// Read reads the agent's stdout until it is closed. Each line is first passed to handle, unchanged
// and as a message, which is zero if the line is not a message; then a response completes its call.
// Therefore handle has printed a response before the caller acts on it. handle must not call Call,
// which would wait for Read. When Read returns, calls fail with ErrGone.
func (p *Peer) Read(r io.Reader, handle func(line []byte, m Message)) error {
	defer p.close()
	return ReadLines(r, func(line []byte) {
		if len(bytes.TrimSpace(line)) == 0 {
			return
		}
		var m Message
		if json.Unmarshal(line, &m) != nil {
			m = Message{}
		}
		handle(line, m)
		if m.IsResponse() {
			p.wake(m)
		}
	})
}

// Call sends a request and returns the result. An error response is returned as *RPCError.
func (p *Peer) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id, response, err := p.expect(method)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	defer p.forget(id)
	if err := p.send(Message{ID: quote(id), Method: method}, params); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-response:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: %w", method, ErrGone)
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %w", method, m.Error)
		}
		return m.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// Notify sends a notification. Params may be nil.
func (p *Peer) Notify(method string, params any) error {
	if err := p.send(Message{Method: method}, params); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// Reply responds to a request of the agent.
func (p *Peer) Reply(id json.RawMessage, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return p.send(Message{ID: id, Result: raw}, nil)
}

// Refuse responds to a request of the agent with an error.
func (p *Peer) Refuse(id json.RawMessage, code int, message string) error {
	return p.send(Message{ID: id, Error: &RPCError{Code: code, Message: message}}, nil)
}

func (p *Peer) send(m Message, params any) error {
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		m.Params = raw
	}
	version := "2.0"
	if p.Bare {
		version = ""
	}
	line, err := json.Marshal(struct {
		Version string `json:"jsonrpc,omitempty"`
		Message
	}{version, m})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if _, err = p.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// expect creates the id of a request and the channel for its response. The channel is closed if no
// response will arrive.
func (p *Peer) expect(method string) (string, <-chan Message, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return "", nil, ErrGone
	}
	p.last++
	id := method + "#" + strconv.Itoa(p.last)
	ch := make(chan Message, 1) // so that the reader never waits
	p.waiting[id] = ch
	return id, ch, nil
}

func (p *Peer) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

func (p *Peer) wake(m Message) {
	var id string
	if json.Unmarshal(m.ID, &id) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch, ok := p.waiting[id]; ok {
		delete(p.waiting, id)
		ch <- m
	}
}

func (p *Peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, ch := range p.waiting {
		close(ch)
	}
	clear(p.waiting)
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("bridge: encode an id: %v", err)) // a string can always be encoded
	}
	return b
}
