package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/socket"
)

// Bounds of the client's messages.
const (
	// socketRate and socketBurst bound the rate of messages per second, and their burst.
	socketRate  = 20
	socketBurst = 100
	// maxSocketRefusals is how many consecutive messages may be refused for their rate before the
	// connection is closed.
	maxSocketRefusals = 100
)

// closure is the reason for which a connection ends.
type closure struct {
	code   websocket.StatusCode
	reason string
}

func (c *closure) Error() string { return fmt.Sprintf("%d %s", c.code, c.reason) }

var (
	errSlowReader = &closure{websocket.StatusTryAgainLater, "the client reads too slowly; continue after the last seq"}
	errLeft       = &closure{websocket.StatusNormalClosure, ""}
)

// socketConn is one WebSocket. Its goroutines write independently; the connection serializes the
// messages.
type socketConn struct {
	server    *sockets
	conn      *websocket.Conn
	corked    *corkedConn   // the connection below conn
	request   *http.Request // the handshake
	sessionID string        // empty for the WebSocket of all sessions
	requestID string        // of the handshake
	protocol  socket.Protocol
	member    *roomMember
	slow      atomic.Bool // a write took longer than WriteTimeout
	pinging   atomic.Bool // a ping has not been answered
}

// serve runs the connection until write returns the reason for the end, the client disconnects, or
// ctx is done.
func (k *socketConn) serve(ctx context.Context, write func(context.Context, *sync.WaitGroup) error) {
	k.server.metrics.streams.Inc()
	defer k.server.metrics.streams.Dec()
	k.conn.SetReadLimit(maxBodyBytes)
	ctx, stop := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { stop(k.read(ctx)) })
	stop(write(ctx, &tasks))
	end := closing(context.Cause(ctx))
	// A close frame cannot be sent in the middle of a message that the client does not read.
	if err := k.conn.Close(end.code, end.reason); err != nil {
		_ = k.conn.CloseNow()
	}
	tasks.Wait()
	attrs := []any{slog.String("session_id", k.sessionID), slog.Int("close_code", int(end.code)), slog.String("reason", end.reason)}
	if end == errSlowReader {
		k.server.metrics.dropped.Inc()
		k.server.logger.InfoContext(ctx, "WebSocket dropped: its reader is slow", attrs...)
		return
	}
	k.server.logger.DebugContext(ctx, "WebSocket closed", attrs...)
}

// closing returns the close code and reason for a cause.
func closing(cause error) *closure {
	if c, ok := errors.AsType[*closure](cause); ok {
		return c
	}
	if errors.Is(cause, errStopping) || errors.Is(cause, eventlog.ErrFollowerStopped) {
		return &closure{websocket.StatusGoingAway, "the server stops; connect again with after"}
	}
	if errors.Is(cause, errTokenExpired) {
		return &closure{closeToken, "the stream token has expired; connect again with another"}
	}
	if websocket.CloseStatus(cause) != -1 {
		return errLeft
	}
	switch failure.CodeOf(cause) {
	case failure.NoSession:
		return &closure{closeDeleted, "the session has been deleted"}
	case failure.Unavailable:
		return &closure{websocket.StatusTryAgainLater, "unavailable; connect again with after"}
	}
	return &closure{websocket.StatusInternalError, "internal error; connect again with after"}
}

// follow sends the opening and then the log, to the end of the session.
func (k *socketConn) follow(ctx context.Context, o *socketOpening, tasks *sync.WaitGroup) error {
	if o.gone != nil {
		f := errorOf(o.gone)
		if err := k.send(ctx, socket.Message{Type: socket.TypeError, Data: problemOf(f)}); err != nil {
			return err
		}
		return &closure{closeGone, string(f.Code)}
	}
	present := k.member.present()
	if err := k.open(ctx, o, present); err != nil {
		return err
	}
	tasks.Go(func() { k.watch(ctx, present) })
	for {
		item, err := o.feed.Next(ctx)
		if err != nil {
			return err
		}
		if err := k.item(ctx, o.feed, item); err != nil {
			return err
		}
		if item.End {
			return &closure{websocket.StatusNormalClosure, "the session is terminated"}
		}
		if item.Events.Len() == 0 && !item.CaughtUp && item.Gap == nil {
			k.pingOnce(ctx, tasks)
			if beat := k.protocol.Beat(); beat != nil {
				if err := k.send(ctx, beat); err != nil {
					return err
				}
			}
		}
	}
}

// open sends the messages that precede the events.
func (k *socketConn) open(ctx context.Context, o *socketOpening, present presence.Presence) error {
	if first := k.protocol.Init(k.server.initial(o, present)); first != nil {
		if err := k.send(ctx, first); err != nil {
			return err
		}
	}
	for cursor := o.cursor; cursor != ""; {
		page, next, err := k.server.store.ConversationPage(ctx, k.sessionID, maxBlockLimit, cursor)
		if err != nil {
			return err
		}
		if err := k.send(ctx, k.protocol.Page(k.sessionID, page, next != "")); err != nil {
			return err
		}
		cursor = next
	}
	for _, q := range o.questions {
		if err := k.send(ctx, k.protocol.Question(k.sessionID, q)); err != nil {
			return err
		}
	}
	o.history, o.questions = nil, nil
	return nil
}

// watch sends the changes of viewers since the first message. A slow client gets the difference to
// the last state sent, not each change.
func (k *socketConn) watch(ctx context.Context, before presence.Presence) {
	for {
		select {
		case <-k.member.changed:
		case <-ctx.Done():
			return
		}
		now := k.member.present()
		for _, m := range k.protocol.Presence(before, now) {
			if err := k.send(ctx, m); err != nil {
				return // the writer of events gets the same error
			}
		}
		before = now
	}
}

// item sends an item of the feed.
func (k *socketConn) item(ctx context.Context, f *feed.Feed, item feed.Item) error {
	if item.Gap != nil {
		return k.send(ctx, socket.Message{Type: socket.TypeGap, Data: socket.Range{From: item.Gap.From, To: item.Gap.To}})
	}
	if err := k.events(ctx, item.Events); err != nil {
		return err
	}
	k.server.metrics.events.Add(float64(item.Events.Len()))
	if item.CaughtUp {
		return k.send(ctx, socket.Message{Type: socket.TypeCaughtUp, Data: map[string]int64{"seq": f.Position()}})
	}
	if item.End {
		return k.send(ctx, socket.Message{Type: socket.TypeEnd, Data: struct{}{}})
	}
	return nil
}

// events sends the messages of consecutive events, with as few writes as their bytes need.
func (k *socketConn) events(ctx context.Context, batch eventlog.Batch) (err error) {
	w := k.write(ctx)
	defer w.end()
	if batch.Len() > 1 {
		k.corked.cork()
		defer func() {
			// Do this even after an error, because buffered messages precede the close frame.
			if uncorked := w.uncork(); err == nil {
				err = uncorked
			}
		}()
	}
	for _, line := range feed.Events(batch) {
		messages, err := k.protocol.Messages(line)
		if err != nil {
			return err
		}
		for _, data := range messages {
			if err := w.text(data); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends one message.
func (k *socketConn) send(ctx context.Context, m any) error {
	data, err := conversation.Encode(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	w := k.write(ctx)
	defer w.end()
	return w.text(data)
}

// socketWrite writes messages, in pieces if they are large. If a client takes longer than
// WriteTimeout for a piece, its connection is closed at the end of the message, when a close frame
// can follow. If it takes longer than twice that time, it is disconnected.
type socketWrite struct {
	to          *socketConn
	ctx         context.Context //nolint:containedctx // the context of the writes, until end
	cancel      context.CancelCauseFunc
	limit, late *time.Timer
}

// write starts writing. The caller must call end.
func (k *socketConn) write(parent context.Context) *socketWrite {
	w := &socketWrite{to: k}
	w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(parent)) // a started message is completed
	w.limit = time.AfterFunc(2*k.server.cfg.WriteTimeout, func() { w.cancel(errSlowReader) })
	w.late = time.AfterFunc(k.server.cfg.WriteTimeout, k.late)
	return w
}

func (w *socketWrite) end() {
	w.limit.Stop()
	w.late.Stop()
	w.cancel(nil)
}

// text writes a message.
func (w *socketWrite) text(data []byte) error {
	if len(data) <= chunkBytes {
		if err := w.piece(func() error { return w.to.conn.Write(w.ctx, websocket.MessageText, data) }); err != nil {
			return err
		}
		return w.timely()
	}
	message, err := w.to.conn.Writer(w.ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), chunkBytes)
		if err := w.piece(func() error { _, err := message.Write(data[:n]); return err }); err != nil {
			return err
		}
		data = data[n:]
	}
	if err := w.piece(message.Close); err != nil {
		return err
	}
	return w.timely()
}

// uncork writes the connection's buffer. The library's writes end with their context, but this
// write only ends when the connection is closed.
func (w *socketWrite) uncork() error {
	stop := context.AfterFunc(w.ctx, func() { _ = w.to.corked.Close() })
	defer stop()
	if err := w.piece(w.to.corked.uncork); err != nil {
		return err
	}
	return w.timely()
}

// piece runs a write with the client's time limit.
func (w *socketWrite) piece(write func() error) error {
	if err := write(); err != nil {
		if errors.Is(context.Cause(w.ctx), errSlowReader) {
			return errSlowReader
		}
		return err
	}
	w.limit.Reset(2 * w.to.server.cfg.WriteTimeout)
	w.late.Reset(w.to.server.cfg.WriteTimeout)
	return nil
}

func (w *socketWrite) timely() error {
	if w.to.slow.Load() {
		return errSlowReader
	}
	return nil
}

// late records that a write has taken too long, although it may still complete.
func (k *socketConn) late() {
	k.slow.Store(true)
	k.server.logger.Debug("WebSocket is slow", slog.String("session_id", k.sessionID))
}

// pingOnce sends a ping, unless the last one has not been answered yet.
func (k *socketConn) pingOnce(ctx context.Context, tasks *sync.WaitGroup) {
	if !k.pinging.Swap(true) {
		tasks.Go(func() {
			defer k.pinging.Store(false)
			k.ping(ctx)
		})
	}
}

// ping pings the client; the connection ends if it does not answer.
func (k *socketConn) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.server.cfg.pongWait)
	defer cancel()
	if err := k.conn.Ping(ctx); err != nil {
		_ = k.conn.CloseNow()
	}
}

// read answers the client's requests, one after another, until the connection ends.
func (k *socketConn) read(ctx context.Context) error {
	limiter := rate.NewLimiter(socketRate, socketBurst)
	refused := 0
	for n := 1; ; n++ {
		kind, data, err := k.conn.Read(context.WithoutCancel(ctx)) // a cancelled read would close the connection without a close frame
		switch {
		case err != nil && k.slow.Load():
			return errSlowReader // a write was aborted, which closed the connection
		case err != nil:
			if websocket.CloseStatus(err) == -1 && ctx.Err() == nil && !errors.Is(err, websocket.ErrMessageTooBig) {
				return errLeft // without a close frame
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case kind != websocket.MessageText:
			return &closure{websocket.StatusUnsupportedData, "messages must be text"}
		case !utf8.Valid(data):
			return &closure{websocket.StatusInvalidFramePayloadData, "messages must be UTF-8"}
		}
		req, err := readSocketRequest(data)
		if limiter.Allow() {
			refused = 0
		} else if refused++; refused > maxSocketRefusals {
			return &closure{websocket.StatusPolicyViolation, "too many messages"}
		} else {
			err = failure.Errorf(failure.RateLimited, "more than %d messages a second; send this one again later", socketRate)
		}
		var answer socket.Message
		if err == nil {
			answer, err = k.answer(ctx, req, fmt.Sprintf("%s-%d", k.requestID, n))
		}
		if err != nil {
			answer = socket.Message{Type: socket.TypeError, Data: problemOf(errorOf(err))}
		}
		answer.ID, answer.For = req.ID, req.Type
		if err := k.send(ctx, answer); err != nil {
			return err
		}
	}
}

// answer executes a request.
func (k *socketConn) answer(ctx context.Context, r socketRequest, requestID string) (socket.Message, error) {
	if r.Type == "ping" {
		return socket.Message{Type: socket.TypePong}, nil
	}
	if k.sessionID == "" {
		return socket.Message{}, invalid("type", "must be ping: this WebSocket follows all sessions")
	}
	if user := k.member.viewer.User.ID; r.Type == "answer" && user != "" {
		r.answeredBy(user)
	}
	method, target, body, err := r.operation(k.sessionID)
	if err != nil {
		return socket.Message{}, err
	}
	status, result := k.server.within(context.WithoutCancel(ctx), k.request, requestID, method, target, body)
	if status >= http.StatusBadRequest {
		return socket.Message{}, r.named(refusal(result))
	}
	switch kind := socket.Type(r.Type); kind {
	case socket.TypeDiff, socket.TypeGitState:
		return socket.Message{Type: kind, Data: json.RawMessage(result)}, nil
	case socket.TypeFilesChanged:
		var changed socket.FilesChanged
		if err := json.Unmarshal(result, &changed); err != nil {
			return socket.Message{}, fmt.Errorf("read the diff: %w", err)
		}
		return socket.Message{Type: kind, Data: changed}, nil
	default:
	}
	return socket.Message{Type: socket.TypeAck, Data: socket.Done{Status: status, RequestID: requestID, Result: result}}, nil
}

// problemOf returns the form of an error in messages.
func problemOf(f *failure.Error) socket.Problem {
	p := socket.Problem{Code: string(f.Code), Message: f.Message}
	if len(f.Fields) > 0 {
		p.Errors, _ = json.Marshal(f.Fields) //nolint:errchkjson // strings
	}
	return p
}
