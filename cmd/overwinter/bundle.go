package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// bundleCmd reads bundles, and moves them between installations.
type bundleCmd struct {
	apiFlags

	Files  bundleFilesCmd  `cmd:"" help:"List the files that a bundle has, or print one."`
	Diff   bundleDiffCmd   `cmd:"" help:"Print how the workspace of a bundle differs from the session's beginning."`
	Export bundleExportCmd `cmd:"" help:"Write a bundle to a portable archive: repository, files, the agent's memory, conversation."`
	Import bundleImportCmd `cmd:"" help:"Create a session that continues from a portable archive."`
}

// bundleExportCmd writes the archive of a bundle.
type bundleExportCmd struct {
	ID   string `arg:"" help:"ID of a bundle, or a session for its newest bundle."`
	File string `placeholder:"FILE" help:"File to write, which must not exist. Default: standard output."`
}

// archivePoll is the interval at which the client checks whether an archive is ready.
const archivePoll = 500 * time.Millisecond

// Run requests the archive, waits until it is ready, and writes it.
func (c *bundleExportCmd) Run(ctx context.Context, s streams, parent *bundleCmd) error {
	return parent.with(func(api *client.Client) (err error) {
		bundle, err := bundleOf(ctx, api, c.ID)
		if err != nil {
			return err
		}
		out := s.stdout
		if c.File != "" {
			file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			defer func() {
				if err = errors.Join(err, file.Close()); err != nil { // an incomplete archive is useless
					err = errors.Join(err, os.Remove(c.File))
				}
			}()
			out = file
		}
		return exportBundle(ctx, api, bundle, out)
	})
}

// bundleOf returns the bundle that an argument names: the bundle with that id, or the newest bundle
// of a session.
func bundleOf(ctx context.Context, api *client.Client, name string) (string, error) {
	if strings.HasPrefix(name, session.BundlePrefix) {
		return name, nil
	}
	id, err := sessionID(ctx, api, name)
	if err != nil {
		return "", err
	}
	got, err := api.SessionGet(ctx, id)
	if err == nil && got.Head == "" {
		err = fmt.Errorf("session %s has no bundle yet; save one with session sync or hibernate", id)
	}
	return got.Head, err
}

// exportBundle waits for the archive of a bundle and writes it.
func exportBundle(ctx context.Context, api *client.Client, bundle string, out io.Writer) error {
	for {
		a, err := api.BundleArchive(ctx, bundle)
		if err != nil {
			return err
		}
		switch a.Status {
		case client.ArchiveReady:
			return api.BundleExport(ctx, bundle, out)
		case client.ArchiveFailed:
			return fmt.Errorf("the archive of bundle %s could not be made: %s", bundle, a.Reason)
		}
		select {
		case <-time.After(archivePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bundleImportCmd creates a session from an archive.
type bundleImportCmd struct {
	File           string `arg:"" help:"Archive that bundle export has written; - reads standard input."`
	Title          string `placeholder:"TEXT" help:"Title. Default: the archive's."`
	Profile        string `placeholder:"PROFILE" help:"Name or ID of a profile. Default: none; an archive has none."`
	IdempotencyKey string `placeholder:"KEY" help:"Importing again with the same key and archive within 24 hours returns the same session. Default: a new key."`
}

// Run prints the session.
func (c *bundleImportCmd) Run(ctx context.Context, s streams, parent *bundleCmd) error {
	return parent.with(func(api *client.Client) error {
		in, size := s.stdin, int64(-1)
		if c.File != "-" {
			file, err := os.Open(c.File)
			if err != nil {
				return err
			}
			defer file.Close() // only read
			info, err := file.Stat()
			if err != nil {
				return err
			}
			in, size = file, info.Size()
		}
		made, err := api.BundleImport(ctx, in, size, client.Import{Title: c.Title, Profile: c.Profile}, c.IdempotencyKey)
		if err != nil {
			return err
		}
		return parent.printImported(ctx, s, api, made)
	})
}

// printImported writes the session of an import, and the parts that are missing from its archive.
func (c *apiFlags) printImported(ctx context.Context, s streams, api *client.Client, made client.Session) error {
	if c.json() {
		return printJSON(s.stdout, made)
	}
	if _, err := fmt.Fprintf(s.stdout, "%s  %s\n", made.ID, made.Status); err != nil {
		return err
	}
	warn(s, made.Warnings)
	if made.Head == "" {
		return nil
	}
	bundle, err := api.BundleGet(ctx, made.Head)
	if err != nil {
		return err
	}
	for _, item := range bundle.Environment.Lost {
		if _, err := fmt.Fprintf(s.stderr, "missing: %s\n", terminal.OneLine(item, 0)); err != nil {
			return err
		}
	}
	return nil
}
