package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
)

// sessionPushCmd moves a session of the user's machine to overwinter.
type sessionPushCmd struct {
	Dir            string `arg:"" optional:"" default:"." type:"existingdir" help:"Directory that the agent works in. Default: the current one."`
	Agent          string `default:"claude" placeholder:"NAME" help:"Agent whose local session is continued: claude. Default ${default}."`
	Local          string `name:"local-session" placeholder:"ID" help:"ID of the agent's own session. Default: the newest one of the directory."`
	Title          string `placeholder:"TEXT" help:"Title. Default: the name of the directory."`
	Profile        string `placeholder:"PROFILE" help:"Name or ID of a profile."`
	IdempotencyKey string `placeholder:"KEY" help:"Pushing again with the same key and the same content within 24 hours returns the same session. Default: a new key."`
}

// Run makes an archive of the directory and of the agent's session, and imports it.
func (c *sessionPushCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	movable, name, err := movableAgent(c.Agent)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // as the agent sees it
	}
	if err != nil {
		return err
	}
	local, err := localAt(movable, dir)
	if err != nil {
		return err
	}
	id := c.Local
	if id == "" {
		if id, err = newestLocal(local); err != nil {
			return fmt.Errorf("%s has no session of %s: %w", dir, c.Agent, err)
		}
	}
	return parent.with(func(api *client.Client) (err error) {
		f, err := os.CreateTemp("", "overwinter-push-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
		m := portable.Manifest{Session: portable.Session{Agent: name, Title: c.Title}}
		if m.Session.Title == "" {
			m.Session.Title = filepath.Base(dir)
		}
		if err := packLocal(ctx, f, &m, movable, local, id, dir); err != nil {
			return err
		}
		size, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		fmt.Fprintf(s.stderr, "overwinter: pushing session %s of %s (%d bytes)\n", id, c.Agent, size)
		made, err := api.BundleImport(ctx, f, size, client.Import{Profile: c.Profile}, c.IdempotencyKey)
		if err != nil {
			return err
		}
		return parent.printImported(ctx, s, api, made)
	})
}

// movableAgent is the adapter of an agent whose sessions can be moved, and its name.
func movableAgent(name string) (agent.Movable, string, error) {
	var names []string
	for _, a := range catalog.Agents().All() {
		movable, ok := a.(agent.Movable)
		if !ok {
			continue
		}
		short, _, _ := strings.Cut(a.Name(), "-")
		if a.Name() == name || short == name {
			return movable, a.Name(), nil
		}
		names = append(names, short)
	}
	return nil, "", usageError{fmt.Sprintf("the sessions of %s cannot be moved; those of these agents can: %s", name, strings.Join(names, ", "))}
}

// localAt is where an agent keeps the sessions of a directory of the user.
func localAt(movable agent.Movable, dir string) (agent.Local, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return agent.Local{}, err
	}
	return movable.Local(agent.Place{Home: home, Workspace: dir}), nil
}

// newestLocal is the session that was written last.
func newestLocal(local agent.Local) (string, error) {
	files, err := filepath.Glob(local.Sessions)
	if err != nil {
		return "", err
	}
	var newest string
	var at time.Time
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if _, err := local.MemoryID(id); err != nil {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		if newest == "" || info.ModTime().After(at) {
			newest, at = id, info.ModTime()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("there is no %s", local.Sessions)
	}
	return newest, nil
}

// packLocal writes the archive of a directory and of one of the agent's sessions in it.
func packLocal(ctx context.Context, out io.Writer, m *portable.Manifest, movable agent.Movable, local agent.Local, id, dir string) (err error) {
	if m.MemoryID, err = local.MemoryID(id); err != nil {
		return err
	}
	var files []string
	for _, pattern := range local.Files(id) {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no session %s in %s", id, local.Root)
	}
	slices.Sort(files)
	host, err := os.Hostname()
	if err != nil {
		host = "a person's machine"
	}
	m.CreatedAt, m.Release, m.Workspace, m.Home = time.Now().UTC(), release, portable.Workspace, portable.Home
	m.Source.Place = dir + " on " + host
	scratch, err := os.MkdirTemp("", "overwinter-push-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	w := portable.NewWriter(out)
	if err := worktree.Pack(ctx, w, m, dir, scratch); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	inside := movable.Local(agent.Place{Home: portable.Home, Workspace: portable.Workspace})
	err = worktree.PackAgentFiles(w, m, files, func(name string) string { return inside.Root + strings.TrimPrefix(name, local.Root) })
	if err != nil {
		return fmt.Errorf("pack the session of the agent: %w", err)
	}
	return w.Close(*m)
}
