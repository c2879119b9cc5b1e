package temporald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

// readyTimeout limits the time from the start of the services until they respond.
const readyTimeout = 30 * time.Second

// StopTimeout limits Server.Stop. Services end within one to three seconds, most of which the
// frontend spends waiting for calls in progress.
const StopTimeout = 8 * time.Second

// Server is a running Temporal cluster of one process.
type Server struct {
	config   Config
	database *database // nil while it was not opened
	temporal temporal.Server
	ui       *webUI // nil without UI

	stopCheckpoints func() // and waits for the last one; nil while there are none
}

// Start opens the database, starts the services and the UI, and returns when they respond. Its
// errors are messages for the user: a port in use, a database that is locked or damaged, a setting
// out of bounds. If ctx ends first, Start stops everything and returns an error that wraps
// ctx.Err().
//
// On a fatal error, Temporal's services log it and end the process.
func Start(ctx context.Context, c Config, logger log.Logger) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dynamic, err := dynamicConfig(c.DynamicConfig)
	if err != nil {
		return nil, err
	}
	if err := checkPort(ctx, c.IP, c.Port); err != nil {
		return nil, fmt.Errorf("frontend: %w", err)
	}
	if c.UIPort != 0 {
		if err := checkPort(ctx, c.IP, c.UIPort); err != nil {
			return nil, fmt.Errorf("ui: %w", err)
		}
	}

	admitted, err := newCallers(ctx, c, logger)
	if err != nil {
		return nil, err
	}
	internal, err := internalTLS(time.Now())
	if err != nil {
		return nil, err
	}

	s := &Server{config: c}
	defer func() {
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err) // Temporal's own errors do not always wrap it
		}
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
		defer cancel()
		err = errors.Join(err, s.Stop(stopCtx))
	}()
	if s.database, err = openDatabase(ctx, c); err != nil {
		return nil, err
	}
	s.stopCheckpoints = s.database.checkpoints(context.WithoutCancel(ctx), log.NewSlogLogger(logger))

	free, err := freePorts(ctx, c.loopback(), 3)
	if err != nil {
		return nil, err
	}
	ports := servicePorts{history: free[0], matching: free[1], worker: free[2]}
	server, err := temporal.NewServer(
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithConfig(c.serverConfig(s.database.sql, ports)),
		temporal.WithStaticHosts(c.staticHosts(ports)),
		temporal.WithDynamicConfigClient(dynamic),
		temporal.WithAuthorizer(admitted),
		temporal.WithTLSConfigFactory(internal),
		temporal.WithLogger(logger),
	)
	if err != nil {
		return nil, fmt.Errorf("assemble the Temporal server: %w", err)
	}
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start the Temporal server: %w", err)
	}
	s.temporal = server
	if c.UIPort != 0 {
		if s.ui, err = startUI(ctx, c, admitted); err != nil {
			return nil, err
		}
	}
	if err := s.waitReady(ctx, log.NewSlogLogger(logger)); err != nil {
		return nil, err
	}
	return s, nil
}

// waitReady returns when the frontend and the UI respond.
func (s *Server) waitReady(ctx context.Context, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no response within %s", readyTimeout))
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{
		HostPort:  s.config.frontendAddress(),
		Namespace: s.config.Namespace,
		Logger:    sdklog.NewStructuredLogger(logger),
	})
	if err != nil {
		return fmt.Errorf("wait for the frontend: %w", err)
	}
	c.Close()
	if s.ui == nil {
		return nil
	}
	return s.ui.waitReady(ctx)
}

// Address returns the frontend's address for clients on this machine, host:port.
func (s *Server) Address() string { return s.config.frontendAddress() }

// UIAddress returns the URL of the web UI, "" without one.
func (s *Server) UIAddress() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.url
}

// Stop ends the UI, then the services, then merges the WAL into the database file. It returns early
// if ctx ends; acknowledged writes are safe either way.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	if s.ui != nil {
		errs = append(errs, s.ui.stop(ctx))
	}
	if s.temporal != nil {
		stopped := make(chan error, 1) // so that the goroutine ends without a receiver
		go func() { stopped <- s.temporal.Stop() }()
		select {
		case err := <-stopped:
			if err != nil {
				errs = append(errs, fmt.Errorf("stop the Temporal server: %w", err))
			}
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("stop the Temporal server: %w", context.Cause(ctx)))...)
		}
	}
	if s.stopCheckpoints != nil {
		s.stopCheckpoints()
	}
	if s.database != nil {
		errs = append(errs, s.database.close())
	}
	return errors.Join(errs...)
}
