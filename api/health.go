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

// readyStore is the part of the store that readiness uses.
type readyStore interface {
	// Ready reports whether Postgres is usable: it answers, has the right schema and is writable.
	// The message of an error states the reason, and is public.
	Ready(ctx context.Context) error
}

// readinessCheck is the route of readiness.
type readinessCheck struct {
	*Server
	store readyStore
}

// ready responds with 503 if a dependency does not work, and while the server is stopping. Causes
// are only logged, except for the store's public messages.
func (s *readinessCheck) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), checkTimeout)
	defer cancel()
	r := readiness{Status: "ready"}
	var all sync.WaitGroup // concurrently, so that a check that hangs does not use up the time of the others
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
		if !errors.Is(ctx.Err(), context.Canceled) { // otherwise the caller has disconnected, which is not a failure of the dependency
			s.logger.WarnContext(ctx, "check failed", slog.String("check", name), slog.Any("error", err))
		}
		if f, ok := errors.AsType[*failure.Error](err); ok && name == "postgres" {
			return f.Message
		}
		return "does not answer"
	}
	return checkPassed
}
