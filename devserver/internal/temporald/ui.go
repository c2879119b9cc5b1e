package temporald

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiapi "github.com/temporalio/ui-server/v2/server/api"
	"github.com/temporalio/ui-server/v2/server/auth"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
)

// webUI is Temporal's web interface. Its handler is assembled here, because its own server would
// listen at another address and not check callers.
type webUI struct {
	server *http.Server
	done   chan error // the result of Serve
	url    string
}

// startUI serves the UI in the background.
func startUI(ctx context.Context, c Config, admitted callers) (*webUI, error) {
	handler, err := uiHandler(&uiconfig.Config{
		TemporalGRPCAddress: c.frontendAddress(),
		Host:                c.IP.String(),
		Port:                c.UIPort,
		EnableUI:            true,
		DefaultNamespace:    c.Namespace,
		// No look-ups at other hosts.
		DisableNewsFetch:   true,
		NotifyOnNewVersion: false,
		HideLogs:           true,
		// Served over plain HTTP, where browsers drop a secure cookie, and every button would fail.
		CORS: uiconfig.CORS{CookieInsecure: true},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the UI: %w", err)
	}
	listener, err := listen(ctx, c.IP, c.UIPort)
	if err != nil {
		return nil, fmt.Errorf("listen for the UI: %w", err)
	}
	reach := c.IP
	if reach.IsUnspecified() {
		reach = c.loopback()
	}
	u := &webUI{
		server: uiServer(admitted, c.UIHosts, handler),
		done:   make(chan error, 1), // room, so that the goroutine does not wait for a reader
		url:    "http://" + net.JoinHostPort(reach.String(), strconv.Itoa(c.UIPort)),
	}
	go func() {
		err := u.server.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		u.done <- err
	}()
	return u, nil
}

// uiHandler assembles the UI as its own package does, but without CORS, because only its own pages
// use it.
func uiHandler(c *uiconfig.Config) (http.Handler, error) {
	config, err := uiconfig.NewConfigProviderWithRefresh(c)
	if err != nil {
		return nil, err
	}
	assets, err := ui.Assets()
	if err != nil {
		return nil, err
	}
	if assets, err = fs.Sub(assets, "local"); err != nil {
		return nil, err
	}
	secureCookie := !c.CORS.CookieInsecure
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure(),
		csrf.EnsureTokenCookie(secureCookie), middleware.CSRFWithConfig(csrf.MiddlewareConfig(config, secureCookie)))
	e.Pre(route.PublicPath(c.PublicPath))
	route.SetHealthRoute(e)
	forwarded := headers.WithForwardHeaders([]string{auth.AuthorizationExtrasHeader, "Caller-Type"})
	if err := route.SetAPIRoutes(e, config, []uiapi.Middleware{forwarded}); err != nil {
		return nil, err
	}
	route.SetAuthRoutes(e, config)
	if err := route.SetUIRoutes(e, c.PublicPath, assets, config); err != nil {
		return nil, err
	}
	route.SetRenderRoute(e, "/")
	return e, nil
}

// waitReady returns when the UI responds.
func (u *webUI) waitReady(ctx context.Context) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		err := u.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the UI: %w", err)
		}
	}
}

func (u *webUI) probe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // read only
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// stop ends the UI and waits for it.
func (u *webUI) stop(ctx context.Context) error {
	err := u.server.Close()
	select {
	case ended := <-u.done:
		return errors.Join(err, ended)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("stop the UI: %w", ctx.Err()))
	}
}
