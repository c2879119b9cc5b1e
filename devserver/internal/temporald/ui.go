package temporald

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
)

// webUI is Temporal's web interface.
type webUI struct {
	server *uiserver.Server
	done   chan error // one value: what Start returned
	url    string
}

// startUI serves the UI in the background.
func startUI(c Config) *webUI {
	host := c.IP.String()
	if c.IP.Is6() {
		host = "[" + host + "]" // the UI joins host and port with a colon
	}
	reach := c.IP
	if reach.IsUnspecified() {
		reach = c.loopback()
	}
	ui := &webUI{
		server: uiserver.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
			TemporalGRPCAddress: c.frontendAddress(),
			Host:                host,
			Port:                c.UIPort,
			EnableUI:            true,
			DefaultNamespace:    c.Namespace,
			// No look-ups at other hosts.
			DisableNewsFetch:   true,
			NotifyOnNewVersion: false,
			HideLogs:           true,
			// Served over plain HTTP: browsers drop a secure cookie, and every button with it.
			CORS: uiconfig.CORS{CookieInsecure: true},
		})),
		done: make(chan error, 1), // so that Start's goroutine ends though nobody asks
		url:  "http://" + net.JoinHostPort(reach.String(), strconv.Itoa(c.UIPort)),
	}
	go func() { ui.done <- ui.server.Start() }()
	return ui
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
	u.server.Stop()
	select {
	case err := <-u.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("stop the UI: %w", ctx.Err())
	}
}
