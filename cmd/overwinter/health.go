package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// serveHealth serves /healthz, /readyz and /metrics for a part without an API, until ctx ends.
func serveHealth(ctx context.Context, address string, checks map[string]func(context.Context) error, metrics prometheus.Gatherer, logger *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, r, checks, logger) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	server := &http.Server{
		Handler: healthHeaders(boundTo(listener.Addr(), mux)), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Shutdown(last) //nolint:errcheck // the process ends now
	}()
	err = server.Serve(listener)
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// healthHeaders prevents browsers and caches from using the responses.
func healthHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		next.ServeHTTP(w, r)
	})
}

// boundTo refuses requests with a foreign host name on a loopback address. Otherwise a web page
// whose name resolves to loopback could read the responses.
func boundTo(address net.Addr, next http.Handler) http.Handler {
	own, err := netip.ParseAddrPort(address.String())
	if err != nil || !own.Addr().IsLoopback() {
		return next // other machines may use any name for this address
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackHost(r.Host) {
			writeJSON(w, http.StatusForbidden, map[string]string{"status": "this address accepts requests for localhost and loopback addresses only"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether a Host header names this machine by loopback.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// ready responds with 200 if every check passes within two seconds, otherwise with 503, and with
// the state of each check. Causes are only logged, except for messages that are meant for clients.
func ready(w http.ResponseWriter, r *http.Request, checks map[string]func(context.Context) error, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup // in parallel: a check that hangs must not use up the time of the others
	states := map[string]string{}
	code, status := http.StatusOK, "ready"
	for name, check := range checks {
		all.Go(func() {
			err := check(ctx)
			mu.Lock()
			defer mu.Unlock()
			if states[name] = "ok"; err == nil {
				return
			}
			if !errors.Is(ctx.Err(), context.Canceled) { // otherwise the caller has disconnected, and the check did not fail
				logger.WarnContext(ctx, "check failed", slog.String("check", name), slog.Any("error", err))
			}
			code, status, states[name] = http.StatusServiceUnavailable, "unavailable", "does not answer"
			if f, ok := errors.AsType[*failure.Error](err); ok {
				states[name] = f.Message
			}
		})
	}
	all.Wait()
	writeJSON(w, code, map[string]any{"status": status, "checks": states})
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body) //nolint:errcheck,errchkjson // the caller has gone
}
