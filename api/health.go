package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// checkTimeout bounds each check of /readyz.
const checkTimeout = 2 * time.Second

func (s *Server) health(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": s.cfg.Version})
}

type readiness struct {
	Status string `json:"status"`
	Checks checks `json:"checks"`
}

type checks struct {
	Postgres string      `json:"postgres"`
	Temporal string      `json:"temporal"`
	Sandbox  SandboxInfo `json:"sandbox"`
}

// readyStore is what readiness needs of Postgres.
type readyStore interface {
	// Ready reports whether Postgres can be worked with: it answers, has the right schema and can be
	// written to. The message of an error says why not, and is shown to anyone who asks.
	Ready(ctx context.Context) error
}

// readinessCheck is the route of readiness.
type readinessCheck struct {
	*Server
	store readyStore
}

// ready answers 503 if something that the server needs does not work, and while it stops. Causes
// stay in the log, except for what the store says in words meant for anyone.
func (s *readinessCheck) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), checkTimeout)
	defer cancel()
	r := readiness{Status: "ready"}
	var all sync.WaitGroup // side by side: one that does not answer must not use up the time of the others
	all.Go(func() { r.Checks.Sandbox = s.cfg.Sandbox(ctx) })
	all.Go(func() { r.Checks.Postgres = s.check(ctx, "postgres", s.store.Ready) })
	all.Go(func() { r.Checks.Temporal = s.check(ctx, "temporal", s.cfg.Signaler.Ping) })
	all.Wait()
	status := http.StatusOK
	if r.Checks.Postgres != checkPassed || r.Checks.Temporal != checkPassed || s.stopping() {
		r.Status, status = "unready", http.StatusServiceUnavailable
	}
	return c.JSON(status, r)
}

const checkPassed = "ok"

func (s *Server) check(ctx context.Context, name string, ping func(context.Context) error) string {
	if err := ping(ctx); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // else the caller has gone, which is no fault of what was asked
			s.logger.WarnContext(ctx, "check failed", slog.String("check", name), slog.Any("error", err))
		}
		if f, ok := errors.AsType[*failure.Error](err); ok && name == "postgres" {
			return f.Message
		}
		return "does not answer"
	}
	return checkPassed
}
