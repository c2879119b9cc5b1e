package temporald

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
)

// webUI is Temporal's web interface, behind a proxy that checks the Host header.
type webUI struct {
	server *uiserver.Server
	proxy  *http.Server
	done   chan error // two values: what the UI's Start and the proxy's Serve returned
	url    string
}

// startUI serves the UI in the background.
func startUI(ctx context.Context, c Config) (*webUI, error) {
	listener, err := listen(ctx, c.IP, c.UIPort)
	if err != nil {
		return nil, fmt.Errorf("listen for the UI: %w", err)
	}
	hidden := hiddenLoopback()
	free, err := freePorts(ctx, hidden, 1)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	inner := netip.AddrPortFrom(hidden, uint16(free[0])) //nolint:gosec // a port
	reach := c.IP
	if reach.IsUnspecified() {
		reach = c.loopback()
	}
	ui := &webUI{
		proxy: uiProxy(inner, c.UIHosts),
		server: uiserver.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
			TemporalGRPCAddress: c.frontendAddress(),
			Host:                inner.Addr().String(),
			Port:                int(inner.Port()),
			EnableUI:            true,
			DefaultNamespace:    c.Namespace,
			// No look-ups at other hosts.
			DisableNewsFetch:   true,
			NotifyOnNewVersion: false,
			HideLogs:           true,
			// Served over plain HTTP: browsers drop a secure cookie, and every button with it.
			CORS: uiconfig.CORS{CookieInsecure: true},
		})),
		done: make(chan error, 2), // room for both, so that neither goroutine waits for a reader
		url:  "http://" + net.JoinHostPort(reach.String(), strconv.Itoa(c.UIPort)),
	}
	go func() { ui.done <- ui.server.Start() }()
	go func() {
		err := ui.proxy.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		ui.done <- err
	}()
	return ui, nil
}

// waitReady returns when the UI answers.
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
	err := u.proxy.Close()
	u.server.Stop()
	for range cap(u.done) {
		select {
		case ended := <-u.done:
			err = errors.Join(err, ended)
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("stop the UI: %w", ctx.Err()))
		}
	}
	return err
}
