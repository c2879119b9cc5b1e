package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

const (
	// streamTokenLife is how long a stream token is valid.
	streamTokenLife = 15 * time.Minute
	// streamTokenUse names the signing key of stream tokens.
	streamTokenUse = "stream tokens"
	// streamTokenPrefix is the prefix of every stream token, so that a misplaced token is
	// recognized.
	streamTokenPrefix = "owst_"
)

// tokenRoutes lists the reads that a stream token permits. Each route has the session's id in its
// path.
var tokenRoutes = map[string]bool{eventsRoute: true, streamRoute: true, socketRoute: true}

// Signer signs with a key that only the apis of an installation have.
type Signer interface {
	Sign(use string, data []byte) []byte
	// Verify reports whether a signature of this use and data was made with the installation's key
	// or a previous key.
	Verify(use string, data, signature []byte) bool
}

// errTokenExpired is the reason of a stream that ends with its token.
var errTokenExpired = errors.New("api: the stream token has expired")

// streamToken is the response to a request for a stream token.
type streamToken struct {
	SessionID string        `json:"sessionId"`
	Token     string        `json:"token"`
	ExpiresAt resource.Time `json:"expiresAt"`
}

// streamTokenCreate creates a token with which a browser reads the streams of one session, because
// neither EventSource nor WebSocket can send headers, and a page must not have an API key.
func (s *streams) streamTokenCreate(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	if err := body.done(); err != nil {
		return err
	}
	if s.cfg.Tokens == nil {
		return failure.Errorf(failure.Unavailable, "this api has no OVERWINTER_SECRET_KEY, so it cannot sign stream tokens")
	}
	if _, err := s.store.SessionGet(c.Request().Context(), id); err != nil {
		return err
	}
	expires := time.Now().Add(streamTokenLife).Truncate(time.Millisecond)
	return c.JSON(http.StatusCreated, streamToken{SessionID: id, Token: signToken(s.cfg.Tokens, id, expires), ExpiresAt: resource.Time(expires)})
}

// signToken returns a stream token, which consists of its expiry and a signature of the expiry and
// the session.
func signToken(signer Signer, sessionID string, expires time.Time) string {
	at := binary.BigEndian.AppendUint64(nil, uint64(expires.UnixMilli())) //nolint:gosec // after 1970
	return streamTokenPrefix + base64.RawURLEncoding.EncodeToString(append(at, signer.Sign(streamTokenUse, tokenData(at, sessionID))...))
}

func tokenData(at []byte, sessionID string) []byte { return append(at[:8:8], sessionID...) }

// checkToken returns the expiry of a session's token.
func checkToken(signer Signer, sessionID, token string, now time.Time) (time.Time, error) {
	text, named := strings.CutPrefix(token, streamTokenPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !named || err != nil || len(raw) <= 8 || signer == nil || !signer.Verify(streamTokenUse, tokenData(raw[:8], sessionID), raw[8:]) {
		return time.Time{}, failure.Errorf(failure.Unauthorized, "the stream token is not one of this session; POST …/stream-tokens returns one")
	}
	expires := time.UnixMilli(int64(binary.BigEndian.Uint64(raw))) //nolint:gosec // it was signed
	if !now.Before(expires) {
		return time.Time{}, failure.Errorf(failure.Unauthorized, "the stream token expired at %s; POST …/stream-tokens returns another", expires.UTC().Format(time.RFC3339))
	}
	return expires, nil
}

// withToken serves a read with a stream token in its URL, until the token expires.
func (s *Server) withToken(c echo.Context, next echo.HandlerFunc) error {
	if !reads(c.Request().Method) {
		return failure.Errorf(failure.Unauthorized, "a stream token is for reading only")
	}
	expires, err := checkToken(s.cfg.Tokens, c.Param("id"), c.QueryParam("token"), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadlineCause(c.Request().Context(), expires, errTokenExpired)
	defer cancel()
	c.SetRequest(c.Request().WithContext(ctx))
	if err = next(c); err != nil && errors.Is(context.Cause(ctx), errTokenExpired) {
		return failure.Errorf(failure.Unauthorized, "the stream token has expired; POST …/stream-tokens returns another")
	}
	return err
}
