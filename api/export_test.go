package api

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// WithoutKeyDelay makes a server answer wrong keys at once.
func WithoutKeyDelay(c *Config) { c.keyDelay = func(context.Context, time.Duration) {} }

// RoutesOf lists method and path of every route.
func RoutesOf(s *Server) []string {
	var out []string
	for r := range s.known {
		out = append(out, r)
	}
	return out
}

// Codes lists every code that an answer may have.
func Codes() []failure.Code {
	var out []failure.Code
	for code := range statuses {
		out = append(out, code)
	}
	return out
}
