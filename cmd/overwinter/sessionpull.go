package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionPullCmd brings a session to the user's machine.
type sessionPullCmd struct {
	sessionArg
	Dir    string `arg:"" optional:"" help:"Directory for the files, which must be empty or not exist. Default: the beginning of the session's ID."`
	Bundle string `placeholder:"BUNDLE" help:"Bundle to copy, as listed by session bundles. Default: the newest."`
}

// Run writes the files and the agent's memory, and prints how to continue.
func (c *sessionPullCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		got, err := api.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		movable, _, err := movableAgent(got.Agent)
		if err != nil {
			return err
		}
		bundle := c.Bundle
		if bundle == "" {
			if bundle, err = bundleOf(ctx, api, id); err != nil {
				return err
			}
			if got.Status == "running" {
				fmt.Fprintln(s.stderr, "overwinter: the session is awake; changes since its newest bundle are not pulled. Save them with session sync")
			}
		}
		dir := c.Dir
		if dir == "" {
			dir = shortIDs("", []string{id})(id)
		}
		return c.pull(ctx, s, api, movable, bundle, dir)
	})
}

// pull brings a bundle into a directory. Nothing is written before the whole archive was checked.
func (c *sessionPullCmd) pull(ctx context.Context, s streams, api *client.Client, movable agent.Movable, bundle, dir string) (err error) {
	dir, made, err := emptyDir(dir)
	if err != nil {
		return err
	}
	pulled := false
	defer func() {
		if !pulled && made {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	scratch, err := os.MkdirTemp("", "overwinter-pull-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	content, archive := io.Pipe()
	sent := make(chan error, 1) // one result
	go func() {
		err := exportBundle(ctx, api, bundle, archive)
		_ = archive.CloseWithError(err) // always nil
		sent <- err
	}()
	staged, err := worktree.Stage(content, scratch)
	_ = content.Close() // always nil
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
		return sendErr
	}
	if err != nil {
		return fmt.Errorf("the archive of bundle %s: %w", bundle, err)
	}
	local, err := localAt(movable, dir)
	if err != nil {
		return err
	}
	id, err := local.LocalID(staged.MemoryID)
	if err != nil {
		return err
	}
	inside := movable.Local(agent.Place{Home: portable.Home, Workspace: portable.Workspace})
	place := func(path string) string {
		below, ok := strings.CutPrefix(path, inside.Root+"/")
		if !ok {
			return ""
		}
		return filepath.Join(local.Root, below)
	}
	for _, e := range staged.Entries {
		if to := place(e.Path); e.AgentFile() && to != "" {
			if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(fmt.Errorf("%s exists already; move it away, or pull into another directory", to), err)
			}
		}
	}
	if err := staged.Files(ctx, dir); err != nil {
		return err
	}
	if err := staged.AgentFiles(place); err != nil {
		return err
	}
	pulled = true
	for _, item := range staged.Missing {
		fmt.Fprintf(s.stderr, "missing: %s\n", terminal.OneLine(item, 0))
	}
	_, err = fmt.Fprintf(s.stdout, "cd %s && %s\n", shellWord(dir), strings.Join(local.Resume(id), " "))
	return err
}

// emptyDir is the path of an empty directory without links, which is made if it does not exist.
func emptyDir(dir string) (path string, made bool, err error) {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", false, err
		}
		made = true
	case err != nil:
		return "", false, err
	case len(list) > 0:
		return "", false, fmt.Errorf("%s is not empty", dir)
	}
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return dir, made, err
}

// shellWord quotes a word for a shell.
func shellWord(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
