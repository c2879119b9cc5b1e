package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// healthServer serves health checks on a free port until the test ends.
func healthServer(t *testing.T, checks map[string]func(context.Context) error, logger *slog.Logger) string {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- serveHealth(ctx, address, checks, prometheus.NewRegistry(), logger) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		return err == nil && conn.Close() == nil
	}, time.Minute, 5*time.Millisecond)
	return "http://" + address
}

func askHealth(t *testing.T, method, url, host string) (status int, header http.Header, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	request.Host = host
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, answer.Header, string(content)
}

func TestHealthKeepsCausesInLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	url := healthServer(t, map[string]func(context.Context) error{
		"temporal": func(context.Context) error { return errors.New("dial 10.1.2.3: password=hunter2") },
		"postgres": func(context.Context) error { return failure.Errorf(failure.Unavailable, "its disk is full") },
		"sandbox":  func(context.Context) error { return nil },
	}, slog.New(slog.NewTextHandler(&log, nil)))
	status, _, body := askHealth(t, http.MethodGet, url+"/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"status":"unavailable","checks":{"temporal":"does not answer","postgres":"its disk is full","sandbox":"ok"}}`, body)
	require.Contains(t, log.String(), "hunter2")
}

// If one check used up the time of another, a single fault would be reported as two.
func TestHealthChecksDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	url := healthServer(t, map[string]func(context.Context) error{
		"postgres": func(ctx context.Context) error {
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		},
		"temporal": func(ctx context.Context) error {
			select {
			case <-asked:
			case <-ctx.Done():
			}
			return ctx.Err()
		},
	}, slog.New(slog.DiscardHandler))
	_, _, body := askHealth(t, http.MethodGet, url+"/readyz", "")
	require.JSONEq(t, `{"status":"unavailable","checks":{"temporal":"ok","postgres":"does not answer"}}`, body)
}

func TestHealthOnLoopbackRefusesForeignHostNames(t *testing.T) {
	t.Parallel()
	url := healthServer(t, nil, slog.New(slog.DiscardHandler))
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/nothing"} {
		for host, admitted := range map[string]bool{
			"": true, "localhost": true, "LOCALHOST:8081": true, "[::1]:8081": true, "[::ffff:127.0.0.1]": true,
			"evil.example": false, "evil.example:8081": false, "127.0.0.1.evil.example": false, "10.1.2.3": false, "0.0.0.0": false,
		} {
			status, header, _ := askHealth(t, http.MethodGet, url+path, host)
			require.Equal(t, admitted, status != http.StatusForbidden, "%s %s: %d", host, path, status)
			require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
			require.Equal(t, "no-store", header.Get("Cache-Control"), path)
			require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'", path)
		}
	}
	status, _, body := askHealth(t, http.MethodHead, url+"/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, body)
}

// Probes and scrapers on other machines use their own names for a public address.
func TestHealthOnPublicAddressAcceptsAnyHostName(t *testing.T) {
	t.Parallel()
	answered := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	request := httptest.NewRequest(http.MethodGet, "http://worker:8081/metrics", http.NoBody)
	for address, want := range map[string]int{"10.1.2.3:8081": http.StatusNoContent, "[::]:8081": http.StatusNoContent, "127.0.0.1:8081": http.StatusForbidden} {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		answer := httptest.NewRecorder()
		boundTo(tcp, answered).ServeHTTP(answer, request)
		require.Equal(t, want, answer.Code, address)
	}
}
