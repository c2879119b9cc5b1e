package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// WithoutKeyDelay makes a server answer wrong keys at once.
func WithoutKeyDelay(c *Config) { c.keyDelay = func(context.Context, time.Duration) {} }

// Functions to make and check stream tokens in tests.
var (
	SignToken  = signToken
	CheckToken = checkToken
)

// RoutesOf lists method and path of every route.
func RoutesOf(s *Server) []string {
	var out []string
	for r := range s.known {
		out = append(out, r)
	}
	return out
}

// Codes lists every code that a response may have.
func Codes() []failure.Code {
	var out []failure.Code
	for code := range statuses {
		out = append(out, code)
	}
	return out
}

// SocketOperation returns the operation of the HTTP API that a message on a WebSocket of the
// session ses_1 requests. A ping has no operation.
func SocketOperation(data []byte) (method, target string, body []byte, err error) {
	r, err := readSocketRequest(data)
	if err != nil || r.Type == "ping" {
		return "", "", nil, err
	}
	return r.operation("ses_1")
}

// Rooms are the rooms of a server.
type Rooms struct{ *rooms }

// NewRooms returns empty rooms.
func NewRooms(store Store) Rooms { return Rooms{newRooms(store, slog.New(slog.DiscardHandler))} }

// Enter calls enter.
func (r Rooms) Enter(ctx context.Context, sessionID string) (leave func(), err error) {
	m, err := r.enter(ctx, presence.Viewer{Client: session.NewID("cli_"), SessionID: sessionID})
	if err != nil {
		return nil, err
	}
	return m.leave, nil
}

// Close calls close.
func (r Rooms) Close() <-chan struct{} { return r.close() }

// SocketRequests returns the types of all requests that clients of a WebSocket may send.
func SocketRequests() []string { return socketRequestTypes() }

// WaitFor sets how long a server waits for statements about presence, and for the answer to a ping.
func WaitFor(c *Config, limit time.Duration) { c.presenceWait, c.pongWait = limit, limit }

// ReadPresence sets how often a server reads the viewers of its sessions, and the changed sessions.
func ReadPresence(every time.Duration) func(*Config) {
	return func(c *Config) { c.presenceRead = every }
}
