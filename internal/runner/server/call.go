package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
)

// Reasons for refusing a call.
const (
	callTooLarge  = "The call is too large."
	callNotJSON   = "The call is not JSON."
	callTooMany   = "Too many calls wait for an answer. Make fewer at a time."
	callNoTurn    = "No turn is in progress."
	callTurnOver  = "The turn ended before the call was answered."
	callUnknown   = "The worker of this turn knows no such calls."
	callNotStored = "The call could not be recorded."
)

// calls are the calls of tools that wait for an answer. Its lock is held from when a call is
// recorded until it is registered, so that an answer finds it.
type calls struct {
	mu      sync.Mutex
	waiting []*call
	settled string // the run whose turn ended last
}

// call is a waiting call.
type call struct {
	run    string
	frame  int64
	answer chan json.RawMessage // receives at most one
}

func refusal(text string) json.RawMessage {
	b, err := json.Marshal(runner.CallRefused{Text: text, Failed: true})
	if err != nil {
		panic(err) // consists of a text and a boolean
	}
	return b
}

// serveCall serves one connection with one call: a line of JSON in, a line of JSON out.
func (s *Server) serveCall(conn *net.UnixConn) {
	if !s.enter(conn) {
		return
	}
	defer s.leave(conn)
	if err := samePeer(conn); err != nil {
		s.logger.Warn("call refused", slog.Any("error", err))
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloBudget))
	data, err := bufio.NewReaderSize(io.LimitReader(conn, runner.MaxCall+2), 64<<10).ReadBytes('\n')
	if err != nil && len(data) <= runner.MaxCall {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	answer := s.call(conn, data)
	if answer == nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(helloBudget))
	_, _ = conn.Write(append(answer, '\n')) // the caller may have disconnected
}

// call records a call and waits for its answer. It returns nil if the caller has disconnected.
func (s *Server) call(conn net.Conn, data []byte) json.RawMessage {
	data = data[:max(0, len(data)-1)]
	switch {
	case len(data) > runner.MaxCall:
		return refusal(callTooLarge)
	case !json.Valid(data):
		return refusal(callNotJSON)
	}
	c, refused := s.record(data)
	if refused != "" {
		return refusal(refused)
	}
	defer s.forgetCall(c)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1))
	}()
	defer func() {
		_ = conn.SetReadDeadline(time.Now())
		<-gone
	}()
	select {
	case answer := <-c.answer:
		return answer
	case <-gone:
		return nil
	}
}

// record records a call as a frame of the open run.
func (s *Server) record(data []byte) (c *call, refused string) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.mu.Lock()
	j, link := s.open, s.link
	s.mu.Unlock()
	switch {
	case j == nil || j.Run() == s.calls.settled:
		return nil, callNoTurn
	case len(s.calls.waiting) >= runner.MaxCalls:
		return nil, callTooMany
	case link != nil && link.run == j.Run() && !link.calls:
		return nil, callUnknown
	}
	no, err := j.Append(runner.Call, time.Now(), data, false)
	switch {
	case errors.Is(err, journal.ErrFinal):
		return nil, callNoTurn
	case err != nil:
		s.fail(err)
		return nil, callNotStored
	}
	c = &call{run: j.Run(), frame: no, answer: make(chan json.RawMessage, 1)}
	s.calls.waiting = append(s.calls.waiting, c)
	return c, ""
}

func (s *Server) forgetCall(c *call) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.waiting = slices.DeleteFunc(s.calls.waiting, func(o *call) bool { return o == c })
}

// waitingCalls returns the frames of a run's waiting calls.
func (s *Server) waitingCalls(run string) []int64 {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	var frames []int64
	for _, c := range s.calls.waiting {
		if c.run == run {
			frames = append(frames, c.frame)
		}
	}
	return frames
}

// answerCalls answers the calls that match, each once.
func (s *Server) answerCalls(answer json.RawMessage, match func(*call) bool) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.waiting = slices.DeleteFunc(s.calls.waiting, func(c *call) bool {
		if !match(c) {
			return false
		}
		c.answer <- answer
		return true
	})
}

// answerCall answers the call in a frame of a run.
func (s *Server) answerCall(run string, a *runner.CallAnswer) error {
	if len(a.Answer) > runner.MaxCallAnswer {
		return errors.New("the answer to a call is too large")
	}
	s.answerCalls(a.Answer, func(c *call) bool { return c.run == run && c.frame == a.Frame })
	return nil
}

// settleCalls ends the calls of a run whose turn has ended.
func (s *Server) settleCalls(run string) {
	s.calls.mu.Lock()
	s.calls.settled = run
	s.calls.mu.Unlock()
	s.answerCalls(refusal(callTurnOver), func(c *call) bool { return c.run == run })
}

// listenForCalls opens the socket for calls.
func (s *Server) listenForCalls() (*net.UnixListener, error) {
	return listenAt(runner.CallSocketPath(s.cfg.Dir))
}

// acceptCalls serves calls until the listener is closed, at the end of ctx.
func (s *Server) acceptCalls(ctx context.Context, listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.logger.ErrorContext(ctx, "accept a call", slog.Any("error", err))
			select { // for example too many open files
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		default:
			s.tasks.Go(func() { s.serveCall(conn) })
		}
	}
}
