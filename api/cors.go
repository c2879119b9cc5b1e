package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// anyOrigin in Config.CORSOrigins admits pages of every origin.
const anyOrigin = "*"

// The headers that pages of other origins may send and read, including those of the Durable Streams
// protocol.
const (
	corsRequestHeaders = "Authorization, Content-Type, Accept, Idempotency-Key, If-None-Match, Last-Event-ID, X-Request-Id, Traceparent, Tracestate"
	corsExposedHeaders = "Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-Sse-Data-Encoding, ETag, Content-Type, " +
		"Content-Disposition, Location, Retry-After, X-Request-Id"
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsMaxAge  = "600" // seconds for which a browser caches a preflight
)

// CheckOrigins validates the allowed origins of pages. withKey reports whether callers need a key:
// without one, "*" would give every page that a user of this machine opens access to the whole API.
func CheckOrigins(origins []string, withKey bool) error {
	for _, o := range origins {
		if o == anyOrigin {
			if !withKey {
				return errors.New(`"*" needs an API key: without one, every page that a browser on this machine opens could command sessions`)
			}
			continue
		}
		u, err := url.Parse(o)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != o || strings.ToLower(o) != o || strings.Contains(o, anyOrigin) {
			return fmt.Errorf(`%q is not an origin: it must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example.com, or *`, o)
		}
	}
	return nil
}

// admitOrigins allows pages of the configured origins to send commands, if callers need a key.
func (s *Server) admitOrigins() error {
	if err := CheckOrigins(s.cfg.CORSOrigins, !s.cfg.WithoutKey); err != nil {
		return fmt.Errorf("api: CORSOrigins: %w", err)
	}
	for _, o := range s.cfg.CORSOrigins {
		if o == anyOrigin {
			s.origins.AddInsecureBypassPattern("/")
			continue
		}
		if err := s.origins.AddTrustedOrigin(o); err != nil {
			return fmt.Errorf("api: CORSOrigins: %w", err)
		}
	}
	return nil
}

// shareWithOrigins allows browsers to pass responses to the pages of configured origins, and
// answers their preflights. Browser credentials (cookies) are never allowed: a page sends the key
// or a token itself.
func (s *Server) shareWithOrigins(next echo.HandlerFunc) echo.HandlerFunc {
	if len(s.cfg.CORSOrigins) == 0 {
		return next
	}
	all := slices.Contains(s.cfg.CORSOrigins, anyOrigin)
	return func(c echo.Context) error {
		request, header := c.Request(), c.Response().Header()
		header.Add(echo.HeaderVary, echo.HeaderOrigin)
		origin := request.Header.Get(echo.HeaderOrigin)
		if origin == "" || !all && !slices.Contains(s.cfg.CORSOrigins, origin) {
			return next(c)
		}
		if all {
			origin = anyOrigin
		}
		header.Set(echo.HeaderAccessControlAllowOrigin, origin)
		header.Set(echo.HeaderAccessControlExposeHeaders, corsExposedHeaders)
		header.Set("Cross-Origin-Resource-Policy", "cross-origin")
		if request.Method != http.MethodOptions || request.Header.Get(echo.HeaderAccessControlRequestMethod) == "" {
			return next(c)
		}
		header.Set(echo.HeaderAccessControlAllowMethods, corsMethods)
		header.Set(echo.HeaderAccessControlAllowHeaders, corsRequestHeaders)
		header.Set(echo.HeaderAccessControlMaxAge, corsMaxAge)
		return c.NoContent(http.StatusNoContent)
	}
}
