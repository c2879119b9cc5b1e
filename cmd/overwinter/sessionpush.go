package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
)

// sessionPushCmd moves a session of the user's machine to overwinter.
type sessionPushCmd struct {
	Dir            string `arg:"" optional:"" default:"." type:"existingdir" help:"Directory that the agent works in. Default: the current one."`
	Agent          string `placeholder:"NAME" help:"Agent whose local session is continued: claude, codex, opencode or gemini. Default: the agent used last in the directory."`
	Local          string `name:"local-session" placeholder:"ID" help:"ID of the agent's own session. Default: the newest one of the directory."`
	Title          string `placeholder:"TEXT" help:"Title. Default: the name of the directory."`
	Profile        string `placeholder:"PROFILE" help:"Name or ID of a profile."`
	IdempotencyKey string `placeholder:"KEY" help:"Pushing again with the same key and the same content within 24 hours returns the same session. Default: a new key."`
}

// Run creates an archive of the directory and of the agent's session, and imports it.
func (c *sessionPushCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	dir, err := filepath.Abs(c.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // the path as the agent sees it
	}
	if err != nil {
		return err
	}
	found, err := findLocal(ctx, s, dir, c.Agent, c.Local)
	if err != nil {
		return err
	}
	return parent.with(func(api *client.Client) (err error) {
		f, err := os.CreateTemp("", "overwinter-push-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
		m := portable.Manifest{Session: portable.Session{Agent: found.agent.name, Title: cmp.Or(c.Title, filepath.Base(dir))}}
		if err := packLocal(ctx, f, &m, found, dir); err != nil {
			return err
		}
		size, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if size > portable.MaxArchiveBytes {
			return fmt.Errorf("the archive of %s has %d bytes; at most %d can be pushed", dir, size, portable.MaxArchiveBytes)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		fmt.Fprintf(s.stderr, "overwinter: pushing session %s of %s (%d bytes)\n", found.ID, found.agent.title, size)
		made, err := api.BundleImport(ctx, f, size, client.Import{Profile: c.Profile}, c.IdempotencyKey)
		if err != nil {
			return err
		}
		return parent.printImported(ctx, s, api, made)
	})
}

// packLocal writes the archive of a directory and of one of the agent's sessions in it.
func packLocal(ctx context.Context, out io.Writer, m *portable.Manifest, found foundLocal, dir string) (err error) {
	moved, err := found.agent.local.Pack(ctx, dir, found.ID)
	if err != nil {
		return fmt.Errorf("pack the session of %s: %w", found.agent.title, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "a person's machine"
	}
	m.CreatedAt, m.Release, m.Workspace, m.Home = time.Now().UTC(), release, portable.Workspace, portable.Home
	m.MemoryID, m.Source.Place = moved.MemoryID, dir+" on "+host
	scratch, err := os.MkdirTemp("", "overwinter-push-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	w := portable.NewWriter(out)
	if err := worktree.Pack(ctx, w, m, dir, scratch); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	for _, f := range moved.Files {
		if err := w.AgentFile(f.Path, int64(len(f.Data)), bytes.NewReader(f.Data)); err != nil {
			return fmt.Errorf("pack the session of %s: %w", found.agent.title, err)
		}
	}
	return w.Close(*m)
}
