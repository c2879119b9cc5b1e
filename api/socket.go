package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/socket"
)

// socketRoute is the WebSocket of a session, which api/asyncapi.yaml describes.
const socketRoute = "/api/sessions/:id/ws"

// maxSessionSockets bounds the WebSockets of one session at one api.
const maxSessionSockets = 1000

var userID = regexp.MustCompile(fmt.Sprintf(`^[\x21-\x7e]{1,%d}$`, presence.MaxUserIDBytes))

// Close codes that RFC 6455 leaves to applications.
const (
	// closeGone means that events after the position of the client have been deleted.
	closeGone websocket.StatusCode = 4410
	// closeDeleted means that the session has been erased.
	closeDeleted websocket.StatusCode = 4404
	// closeToken means that the stream token of the handshake has expired.
	closeToken websocket.StatusCode = 4401
)

// socketStore reads the opening state of a WebSocket.
type socketStore interface {
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	QuestionList(ctx context.Context, sessionID string, status question.Status, limit int, cursor string) ([]question.Question, string, error)
	conversationStore
}

// sockets are the WebSockets of sessions.
type sockets struct {
	*Server
	store socketStore
}

// socketOpening is the opening state of a connection. It is read before the upgrade, so that a
// refusal has a status code.
type socketOpening struct {
	feed      *feed.Feed
	gone      error // the position has been deleted
	history   *conversation.Conversation
	cursor    string // cursor of the next page of the history
	session   session.Session
	questions []json.RawMessage
}

// session serves the WebSocket of a session.
func (s *sockets) session(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	if role := c.QueryParam("role"); role != "" && role != "client" {
		return invalid("role", "must be client")
	}
	after, err := startPosition(c)
	if err != nil {
		return err
	}
	user, err := viewingUser(c)
	if err != nil {
		return err
	}
	if err := s.upgradable(c.Request()); err != nil {
		return err
	}
	if s.stopping() {
		return failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
	}
	if err := s.clients.beginStream(); err != nil {
		return err
	}
	defer s.clients.endStream()

	ctx, cancel := s.untilStop(c)
	defer cancel()
	name := socket.Choose(c.Request().Header.Values("Sec-WebSocket-Protocol"))
	_, resumed := c.QueryParams()["after"]
	opening, err := s.open(ctx, id, after, resumed, name == socket.EventsName)
	if err != nil {
		return err
	}
	if opening.feed != nil {
		defer opening.feed.Close()
	}
	member, err := s.rooms.enter(ctx, presence.Viewer{Client: uuid.NewString(), SessionID: id, User: user})
	if err != nil {
		return err
	}
	defer member.leave()
	k, err := s.accept(c, name)
	if err != nil {
		return err
	}
	defer s.clients.released()
	k.sessionID, k.member = id, member
	k.serve(ctx, func(ctx context.Context, tasks *sync.WaitGroup) error { return k.follow(ctx, opening, tasks) })
	return nil
}

// untilStop returns the context of a request that also ends when the server stops.
func (s *sockets) untilStop(c echo.Context) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(c.Request().Context())
	stop := context.AfterFunc(s.streams, func() { end(context.Cause(s.streams)) })
	return ctx, func() { stop(); end(nil) }
}

// accept completes the handshake with a sub-protocol that the client offers. The connection counts as open until released is
// called.
func (s *sockets) accept(c echo.Context, protocol string) (*socketConn, error) {
	options := &websocket.AcceptOptions{
		InsecureSkipVerify: true, // upgradable has checked the origin by the rules for all requests
		// Compression would need a window of at least 32 KiB for each connection, and would
		// compress each event separately, although events are mostly under 200 bytes.
		CompressionMode: websocket.CompressionDisabled,
	}
	if protocol != "" {
		options.Subprotocols = []string{protocol}
	}
	upgrade := &corkingWriter{ResponseWriter: c.Response()}
	conn, err := websocket.Accept(upgrade, c.Request(), options)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return &socketConn{
		server: s, conn: conn, corked: upgrade.conn, request: c.Request(), requestID: idOfRequest(c), protocol: socket.ByName(conn.Subprotocol()),
	}, nil
}

// upgradable refuses requests that are not handshakes, and pages of other origins, because browsers
// do not restrict where pages may open WebSockets.
func (s *sockets) upgradable(r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Method != http.MethodGet || r.Header.Get("Sec-WebSocket-Version") != "13" {
		return failure.Errorf(failure.Invalid, "this address is a WebSocket: the request must have the headers Upgrade: websocket and Sec-WebSocket-Version: 13")
	}
	asPost := r.Clone(r.Context())
	asPost.Method = http.MethodPost
	if err := s.origins.Check(asPost); err != nil {
		return &failure.Error{Code: failure.Forbidden, Message: "pages of another origin may not open a WebSocket", Err: err}
	}
	return nil
}

// open reads the opening state of the connection. The conversation is read before the session, so
// that changes in between are in the events that follow. A bare connection starts with events.
func (s *sockets) open(ctx context.Context, id string, after int64, resumed, bare bool) (*socketOpening, error) {
	o := &socketOpening{}
	if !resumed && !bare {
		page, next, err := s.store.ConversationPage(ctx, id, maxBlockLimit, "")
		if err != nil {
			return nil, err
		}
		o.history, o.cursor, after = &page, next, page.Seq
	}
	var err error
	o.feed, err = s.feeds.Open(ctx, id, after, s.cfg.Heartbeat)
	if _, gone := errors.AsType[*eventlog.PositionGoneError](err); gone {
		o.gone = err
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	o.session = o.feed.Session()
	if bare {
		return o, nil
	}
	if o.questions, err = s.openQuestions(ctx, id); err != nil {
		o.feed.Close()
		return nil, err
	}
	return o, nil
}

// openQuestions returns the open questions, oldest first, in the form of GET
// /api/sessions/:id/questions.
func (s *sockets) openQuestions(ctx context.Context, id string) ([]json.RawMessage, error) {
	items, _, err := s.store.QuestionList(ctx, id, question.Open, maxLimit, "")
	if err != nil {
		return nil, err
	}
	masker, err := s.cfg.Masks.Masker(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, 0, len(items))
	for _, q := range slices.Backward(items) {
		q.Asked = q.Asked.Map(masker.Text, masker.JSON)
		data, err := json.Marshal(resource.Question(q))
		if err != nil {
			return nil, fmt.Errorf("encode question: %w", err)
		}
		out = append(out, data)
	}
	return out, nil
}

// viewingUser returns the user who views a session, as stated by the client. The value is not
// verified.
func viewingUser(c echo.Context) (presence.User, error) {
	u := presence.User{ID: c.QueryParam("userId"), Name: c.QueryParam("name")}
	switch {
	case u.ID != "" && !userID.MatchString(u.ID):
		return u, invalid("userId", "must be 1 to %d visible ASCII characters", presence.MaxUserIDBytes)
	case !utf8.ValidString(u.Name) || strings.ContainsFunc(u.Name, unicode.IsControl):
		return u, invalid("name", "must be UTF-8 without control characters")
	case utf8.RuneCountInString(u.Name) > presence.MaxUserNameRunes:
		return u, invalid("name", "is %d characters long; at most %d are allowed", utf8.RuneCountInString(u.Name), presence.MaxUserNameRunes)
	case u.ID == "" && u.Name != "":
		return u, invalid("userId", "is required with name")
	case u.Name == "":
		u.Name = u.ID
	}
	return u, nil
}

// initial returns the content of the first message.
func (s *sockets) initial(o *socketOpening, present presence.Presence) socket.Opening {
	view := resource.Session(o.session)
	m := socket.Opening{Seq: o.feed.Position(), Session: view, History: o.history, More: o.cursor != ""}
	m.Data = socket.InitData{
		Sandbox: socket.SandboxOf(view.Runtime.Sandbox), Work: socket.Work{RunnerBusy: view.Queue.Processing > 0, PromptsQueued: view.Queue.Queued},
		ConnectedUsers: socket.Users(present.Users), AvailableModels: []string{}, ConnectedClients: present.Clients,
	}
	if agent, ok := s.described(view.Agent); ok && agent.Models != nil {
		m.Data.AvailableModels = agent.Models
	}
	return m
}
