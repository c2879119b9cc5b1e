package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// LocalModalCmd serves Modal's API on this machine.
type LocalModalCmd struct {
	Address   string `default:"127.0.0.1:9900" placeholder:"ADDR" help:"Where to listen: 127.0.0.1, ::1 or localhost, with a port; 0 for any. Default ${default}."`
	DataDir   string `default:"${data_dir}/local-modal" type:"path" placeholder:"DIR" help:"Where sandboxes, images and snapshots are kept. Default ${default}."`
	Isolation string `env:"OVERWINTER_LOCALMODAL_ISOLATION" default:"auto" placeholder:"LEVEL" help:"What keeps sandboxes apart: namespaces, chroot, directory, or auto for the best that works here. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *LocalModalCmd) Validate() error {
	_, err := box.ParseIsolation(c.Isolation)
	return err
}

// Run prints the server's URL as one line and serves until ctx ends.
func (c *LocalModalCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
	isolation, err := box.ParseIsolation(c.Isolation)
	if err != nil {
		return err
	}
	server, err := localmodal.New(localmodal.Options{Address: c.Address, DataDir: c.DataDir, Isolation: isolation, Logger: logger})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.stdout, server.URL()); err != nil {
		return errors.Join(fmt.Errorf("print the URL: %w", err), server.Close())
	}
	return server.Run(ctx)
}
