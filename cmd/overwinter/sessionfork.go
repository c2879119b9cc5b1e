package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionForkCmd forks a session.
type sessionForkCmd struct {
	sessionArg
	Bundle string   `placeholder:"BUNDLE" xor:"point" help:"Bundle to start from, as listed by session bundles. Default: the newest."`
	After  string   `placeholder:"PROMPT" xor:"point" help:"Fork after this prompt."`
	Before string   `placeholder:"PROMPT" xor:"point" help:"Fork before this prompt."`
	Prompt string   `placeholder:"TEXT" help:"First prompt of the fork, or - to read it from standard input."`
	Attach []string `sep:"none" aliases:"file" placeholder:"FILE" help:"File to attach to the first prompt; it is placed in the workspace. Repeatable."`
	Wait   bool     `help:"Print the agent's answer to --prompt and return when the turn ends. Fails if the session is in error."`
	timeoutFlag
	Title          string `placeholder:"TEXT" help:"Title. Default: the session's."`
	Profile        string `placeholder:"PROFILE" help:"Name or ID of a profile. Default: the session's."`
	Agent          string `placeholder:"NAME" help:"Agent of the fork, as listed by /api/agents. A different agent gets the conversation as a note. Default: the session's."`
	IdempotencyKey string `placeholder:"KEY" help:"Forking again with the same key and flags within 24 hours returns the same session. Default: a new key."`
}

// Validate checks what kong cannot.
func (c *sessionForkCmd) Validate() error {
	if c.Wait && c.Prompt == "" {
		return usageError{"--wait needs --prompt: otherwise the fork waits for its first prompt"}
	}
	if len(c.Attach) > 0 && c.Prompt == "" {
		return usageError{"--attach needs --prompt"}
	}
	return needsWait(c.Timeout, c.Wait)
}

// Run prints the fork, or waits for the end of its first turn.
func (c *sessionForkCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		f := client.Fork{BundleID: c.Bundle, PromptID: c.After, Title: c.Title, Profile: c.Profile, Agent: c.Agent}
		if c.Before != "" {
			f.PromptID, f.Before = c.Before, true
		}
		if f.BundleID == "" && f.PromptID == "" {
			from, err := api.SessionGet(ctx, id)
			if err != nil {
				return err
			}
			if from.Head == "" {
				return fmt.Errorf("session %s has no bundle yet; save one with session sync or hibernate", id)
			}
			f.BundleID = from.Head
		}
		if c.Prompt != "" {
			text, err := promptText(c.Prompt, s.stdin)
			if err != nil {
				return err
			}
			files, err := attachedFiles(c.Attach)
			if err != nil {
				return err
			}
			f.Prompt = &client.FirstPrompt{ID: firstPromptID(c.IdempotencyKey), Content: text, Files: files}
		}
		made, err := api.SessionFork(ctx, id, f, c.IdempotencyKey)
		if err != nil {
			return err
		}
		if c.Wait {
			return c.awaitFirst(ctx, s, parent, api, made, *f.Prompt)
		}
		return parent.printSession(s.stdout, made)
	})
}

// sessionTreeCmd prints the forks of a session, recursively.
type sessionTreeCmd struct{ sessionArg }

// forkTree is a session with its forks.
type forkTree struct {
	Session client.Session `json:"session"`
	Forks   []forkTree     `json:"forks"`
}

// Run prints one line for each session, below its parent.
func (c *sessionTreeCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		root, err := api.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		tree, err := forksBelow(ctx, api, root)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, tree)
		}
		return tree.print(s.stdout, 0)
	})
}

func forksBelow(ctx context.Context, api *client.Client, s client.Session) (forkTree, error) {
	tree := forkTree{Session: s, Forks: []forkTree{}}
	page, err := api.ForkList(ctx, s.ID)
	if err != nil {
		return tree, err
	}
	for _, fork := range page.Items {
		below, err := forksBelow(ctx, api, fork)
		if err != nil {
			return tree, err
		}
		tree.Forks = append(tree.Forks, below)
	}
	return tree, nil
}

func (t forkTree) print(w io.Writer, depth int) error {
	at := ""
	if from := t.Session.ForkedFrom; from != nil && depth > 0 {
		at = "  after " + from.PromptID
		if from.PromptID == "" {
			at = "  from the beginning"
		}
	}
	_, err := fmt.Fprintf(w, "%s%s  %s  %s%s\n", strings.Repeat("  ", depth), t.Session.ID, t.Session.Status, terminal.OneLine(t.Session.Title, terminal.TitleRunes), at)
	for _, fork := range t.Forks {
		if err == nil {
			err = fork.print(w, depth+1)
		}
	}
	return err
}
