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
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// sessionPullCmd copies a session to the user's machine.
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
		from, err := localAgentOf(got.Agent)
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
		return c.pull(ctx, s, api, from, bundle, dir)
	})
}

// pull copies a bundle into a directory. It checks the whole archive before it writes.
func (c *sessionPullCmd) pull(ctx context.Context, s streams, api *client.Client, from localAgent, bundle, dir string) (err error) {
	dir, made, err := emptyDir(dir)
	if err != nil {
		return err
	}
	pulled := false
	defer func() {
		if !pulled {
			err = errors.Join(err, emptyAgain(dir, made))
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
	moved, err := movedFrom(staged)
	if err != nil {
		return err
	}
	agents, err := localAgents()
	if err != nil {
		return err
	}
	leaveSettings(staged, agents)
	if err := staged.Files(ctx, dir); err != nil {
		return err
	}
	moved.Note = whereNow(dir, staged.Missing)
	id, err := from.local.Unpack(ctx, dir, moved)
	if err != nil && !errors.Is(err, agent.ErrNoMemory) {
		return fmt.Errorf("the session of %s: %w", from.title, err)
	}
	pulled = true
	for _, item := range staged.Missing {
		fmt.Fprintf(s.stderr, "missing: %s\n", terminal.OneLine(item, 0))
	}
	for _, name := range settingsIn(dir, agents) {
		fmt.Fprintf(s.stderr, "overwinter: %s is in the repository and configures an agent; read it before you continue\n", terminal.OneLine(name, 0))
	}
	if id == "" {
		fmt.Fprintf(s.stderr, "overwinter: %s remembers nothing of this session; only its files were pulled\n", from.title)
		_, err = fmt.Fprintf(s.stdout, "cd %s\n", shellWord(dir))
		return err
	}
	_, err = fmt.Fprintf(s.stdout, "cd %s && %s\n", shellWord(dir), strings.Join(from.local.Resume(id), " "))
	return err
}

// whereNow returns the note for an agent that was moved to this machine. The note describes the new
// environment.
func whereNow(dir string, missing []string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "a person's machine"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This session was moved here. It was in a sandbox, in %s; now you work on %s, in %s, with the files and the repository "+
		"of that sandbox. Its other programs, files outside of the workspace and running processes are not here, and actions that were permitted "+
		"there may not be permitted here.", portable.Workspace, host, dir)
	const most, mostItem = 20, 200
	for i, item := range missing {
		switch i {
		case 0:
			b.WriteString(" Missing:")
		case most:
			b.WriteString("\n- and more")
			return b.String()
		}
		b.WriteString("\n- " + terminal.OneLine(item, mostItem))
	}
	return b.String()
}

// movedFrom returns the agent's memory in an archive.
func movedFrom(staged *worktree.Staged) (agent.Moved, error) {
	m := agent.Moved{MemoryID: staged.MemoryID}
	left := int64(transcript.MaxRevertBytes)
	for _, e := range staged.Entries {
		if !e.AgentFile() {
			continue
		}
		if left -= e.Size; left < 0 {
			return m, fmt.Errorf("the agent's files have more than %d bytes, which is too much to be pulled", transcript.MaxRevertBytes)
		}
		f, err := staged.Content(e)
		if err != nil {
			return m, err
		}
		data, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return m, err
		}
		m.Files = append(m.Files, transcript.File{Path: e.Path, Data: data})
	}
	return m, nil
}

// emptyAgain deletes the content of a directory that was empty, and the directory itself if it was
// created.
func emptyAgain(dir string, made bool) error {
	if made {
		return os.RemoveAll(dir)
	}
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// emptyDir returns the path of an empty directory without links, and creates it if it does not
// exist.
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
