package api

import "github.com/labstack/echo/v4"

// answerHeaders are set on every answer before its handler runs. Answers contain conversations,
// files and states, so no cache may store them, and no browser may render, sniff or frame them as a
// page. A handler with other content (a file, a stream) overrides individual headers.
var answerHeaders = map[string]string{
	echo.HeaderXContentTypeOptions:   "nosniff",
	echo.HeaderCacheControl:          "no-store",
	echo.HeaderContentSecurityPolicy: "default-src 'none'; frame-ancestors 'none'",
	echo.HeaderXFrameOptions:         "DENY",
	echo.HeaderReferrerPolicy:        "no-referrer",
	"Cross-Origin-Resource-Policy":   "same-origin",
}

func (s *Server) secureHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		for name, value := range answerHeaders {
			header.Set(name, value)
		}
		return next(c)
	}
}
