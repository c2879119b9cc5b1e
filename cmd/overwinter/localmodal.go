package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// localModalCmd serves Modal's API on this machine.
type localModalCmd struct {
	Address      string        `default:"127.0.0.1:9900" placeholder:"ADDR" help:"Address to listen on: 127.0.0.1, ::1 or localhost, with a port; 0 selects a free one. Default ${default}."`
	DataDir      string        `default:"${data_dir}/local-modal" type:"path" placeholder:"DIR" help:"Directory for sandboxes, images and snapshots. Default ${default}."`
	TokenID      string        `env:"OVERWINTER_LOCALMODAL_TOKEN_ID" placeholder:"ID" help:"ID of the token that clients must send. Default: a token generated once and stored in the data directory."`
	TokenSecret  secret.Value  `env:"OVERWINTER_LOCALMODAL_TOKEN_SECRET" placeholder:"SECRET" help:"Secret of that token, at least 16 characters."`
	Isolation    string        `env:"OVERWINTER_LOCALMODAL_ISOLATION" default:"auto" placeholder:"LEVEL" help:"Isolation of the local Modal's sandboxes: namespaces, chroot, directory, or auto for the strongest that works here. Default ${default}."`
	Network      string        `name:"sandbox-network" env:"OVERWINTER_SANDBOX_NETWORK" default:"${sandbox_network}" placeholder:"NETWORK" help:"Network of the local Modal's sandboxes: own (the internet without this machine and private addresses), shared (this machine's), or auto for own on the level namespaces. Default ${default}."`
	HostPorts    string        `name:"sandbox-host-ports" env:"OVERWINTER_SANDBOX_HOST_PORTS" placeholder:"PORTS" help:"Ports of this machine's loopback interface that sandboxes with their own network reach as host.overwinter.internal, such as 8901,11434 or 8000-8099. Default: none."`
	DrainTimeout time.Duration `env:"OVERWINTER_LOCALMODAL_DRAIN_TIMEOUT" placeholder:"DURATION" help:"How long a stop waits for clients to end their sandboxes, at most 2h. Default: do not wait."`

	sandboxLimitFlags
}

// Validate checks what kong cannot.
func (c *localModalCmd) Validate() error {
	if (c.TokenID == "") != c.TokenSecret.Empty() {
		return errors.New("--token-id and --token-secret belong together: set both, or neither")
	}
	if _, err := c.limits(); err != nil {
		return err
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > 2*maxDrainTimeout {
		return fmt.Errorf("--drain-timeout is %s; it must be from 0s to %s", c.DrainTimeout, 2*maxDrainTimeout)
	}
	_, _, _, err := parseSandbox(c.Isolation, c.Network, c.HostPorts)
	return err
}

// parseSandbox parses the isolation, network and host ports of sandboxes.
func parseSandbox(isolation, network, hostPorts string) (box.Isolation, box.Network, hostports.Set, error) {
	i, err := box.ParseIsolation(isolation)
	if err != nil {
		return "", "", hostports.Set{}, err
	}
	n, err := box.ParseNetwork(network)
	if err != nil {
		return "", "", hostports.Set{}, err
	}
	p, err := hostports.Parse(hostPorts)
	if err != nil {
		return "", "", hostports.Set{}, fmt.Errorf("--sandbox-host-ports: %w", err)
	}
	return i, n, p, nil
}

// Run prints the server's URL as one line and serves until ctx ends.
func (c *localModalCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
	isolation, network, ports, err := parseSandbox(c.Isolation, c.Network, c.HostPorts)
	if err != nil {
		return err
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	server, err := localmodal.New(localmodal.Options{
		Address: c.Address, DataDir: c.DataDir, Isolation: isolation, Network: network, HostPorts: ports, Limits: limits, Logger: logger,
		DrainTimeout: c.DrainTimeout, Token: access.Token{ID: c.TokenID, Secret: c.TokenSecret.Reveal()},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.stdout, server.URL()); err != nil {
		return errors.Join(fmt.Errorf("print the URL: %w", err), server.Close())
	}
	// Written to stderr, because programs read the URL from stdout.
	_, _ = fmt.Fprint(s.stderr, c.usage(server.URL()))
	return server.Run(ctx)
}

// usage explains how a client connects, without showing the token itself.
func (c *localModalCmd) usage(url string) string {
	if c.TokenID != "" {
		return fmt.Sprintf("Clients need MODAL_SERVER_URL=%s and this server's token.\n", url)
	}
	return fmt.Sprintf("Clients need this server's token:\n  export MODAL_SERVER_URL=%s; set -a; . '%s'; set +a\n",
		url, strings.ReplaceAll(access.Path(c.DataDir), "'", `'\''`))
}
