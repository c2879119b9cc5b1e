package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sessionCreateCmd creates a session.
type sessionCreateCmd struct {
	Agent    string   `required:"" placeholder:"NAME" help:"Agent of the session, such as demo."`
	Repo     string   `placeholder:"URL" help:"Repository that is cloned into the workspace; https or http. Credentials are the secret git:HOST."`
	Ref      string   `placeholder:"NAME" help:"Branch, tag or commit of the repository. Default: its default branch."`
	Setup    string   `placeholder:"SCRIPT" help:"Shell script that runs once in the new workspace; @FILE reads it from a file."`
	Profile  string   `placeholder:"NAME" help:"ID or name of a profile; @VERSION after it selects a version. Default: none."`
	Title    string   `placeholder:"TEXT" help:"Title of the session."`
	Prompt   string   `placeholder:"TEXT" help:"First prompt; - reads it from standard input."`
	PromptID string   `name:"prompt-id" placeholder:"ID" help:"ID of the first prompt. Default: a new ID."`
	Attach   []string `sep:"none" aliases:"file" placeholder:"FILE" help:"File to attach to the first prompt; it is placed in the workspace. Repeatable."`
	Wait     bool     `help:"Print the agent's answer to --prompt and return when the turn ends; with --eager alone, when the session runs. Fails if the session is in error."`
	timeoutFlag
	Eager           bool              `help:"Start the sandbox immediately instead of with the first prompt."`
	IdleTimeout     string            `placeholder:"DURATION" help:"Idle time before the session hibernates, such as 30s. Default: the server's."`
	QuestionTimeout time.Duration     `placeholder:"DURATION" help:"How long a question of the agent waits for its answer, such as 1h. Default: the server's."`
	Checkpoint      string            `placeholder:"WHEN" help:"When to save a bundle of the awake session: hibernate (not at all), turn, or a duration. Default: the server's."`
	Model           string            `placeholder:"NAME" help:"Model for the agent. Default: the agent's choice."`
	Permissions     string            `enum:"allow,ask,deny," default:"" placeholder:"POLICY" help:"Policy for the agent's tools: allow, ask or deny. Default: allow."`
	Metadata        map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Metadata of the session; can be repeated."`
	IdempotencyKey  string            `placeholder:"KEY" help:"Creating again with the same key and flags within 24 hours returns the same session. Default: a new key."`
}

// Validate checks what kong cannot.
func (c *sessionCreateCmd) Validate() error {
	if c.Wait && c.Prompt == "" && !c.Eager {
		return usageError{"--wait needs --prompt or --eager: otherwise the session waits for its first prompt"}
	}
	if c.PromptID != "" && c.Prompt == "" {
		return usageError{"--prompt-id needs --prompt"}
	}
	if len(c.Attach) > 0 && c.Prompt == "" {
		return usageError{"--attach needs --prompt"}
	}
	return needsWait(c.Timeout, c.Wait)
}

// created is the JSON output of create --wait.
type created struct {
	Session client.Session `json:"session"`
	*cli.PromptAnswer
}

// Run prints the session as it was created, or waits for the end of its first turn.
func (c *sessionCreateCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	create, err := c.request(s.stdin)
	if err != nil {
		return err
	}
	return parent.with(func(api *client.Client) error {
		made, err := api.SessionCreate(ctx, create, c.IdempotencyKey)
		if err != nil {
			return err
		}
		warn(s, made.Warnings)
		if !c.Wait {
			return parent.printSession(s.stdout, made)
		}
		if create.Prompt == nil {
			if err := printID(s, parent, made); err != nil {
				return err
			}
			return c.awaitRunning(ctx, s, parent, api, made)
		}
		return c.awaitFirst(ctx, s, parent, api, made, *create.Prompt)
	})
}

// printID prints the ID of a new session on stderr if stdout has only the answer.
func printID(s streams, parent *sessionCmd, made client.Session) error {
	if parent.json() {
		return nil
	}
	_, err := fmt.Fprintf(s.stderr, "session %s\n", made.ID)
	return err
}

// awaitFirst prints the answer to the first prompt of a new session.
func (f timeoutFlag) awaitFirst(
	ctx context.Context, s streams, parent *sessionCmd, api *client.Client, made client.Session, first client.FirstPrompt,
) error {
	if err := printID(s, parent, made); err != nil {
		return err
	}
	prompt := client.Prompt{ID: first.ID, SessionID: made.ID, Content: first.Content, Status: client.PromptQueued}
	answer, err := f.await(ctx, s, parent, api, prompt, 0)
	if err != nil {
		return err
	}
	if parent.json() {
		if made, err = api.SessionGet(ctx, made.ID); err != nil {
			return err
		}
		if err := printJSON(s.stdout, created{made, &answer}); err != nil {
			return err
		}
	}
	return answer.Outcome()
}

// request returns the body of the request.
func (c *sessionCreateCmd) request(stdin io.Reader) (client.Create, error) {
	create := client.Create{Agent: c.Agent, Title: c.Title, Profile: c.Profile, IdleTimeout: c.IdleTimeout}
	if c.Eager {
		create.Sandbox = "eager"
	}
	setup, err := scriptText(c.Setup)
	if err != nil {
		return create, err
	}
	if workspace := (client.Workspace{RepoURL: c.Repo, Ref: c.Ref, Setup: setup}); workspace != (client.Workspace{}) {
		create.Workspace = &workspace
	}
	options := client.Options{Model: c.Model, Permissions: client.Policy(c.Permissions), QuestionTimeout: client.Duration(c.QuestionTimeout), Checkpoint: c.Checkpoint}
	if options != (client.Options{}) {
		create.Options = &options
	}
	if len(c.Metadata) > 0 {
		create.Metadata = map[string]any{}
		for key, value := range c.Metadata {
			create.Metadata[key] = value
		}
	}
	if c.Prompt == "" {
		return create, nil
	}
	text, err := promptText(c.Prompt, stdin)
	if err != nil {
		return create, err
	}
	files, err := attachedFiles(c.Attach)
	if err != nil {
		return create, err
	}
	create.Prompt = &client.FirstPrompt{Content: text, ID: c.PromptID, Files: files}
	if c.PromptID == "" {
		create.Prompt.ID = firstPromptID(c.IdempotencyKey)
	}
	return create, nil
}

// firstPromptID returns the id of the first prompt of a new session. The client chooses the id so
// that it can wait for the prompt. The id depends only on the idempotency key, so that a repeated
// request is identical.
func firstPromptID(idempotencyKey string) string {
	if idempotencyKey == "" {
		return session.NewID(session.PromptPrefix)
	}
	digest := sha256.Sum256([]byte(idempotencyKey))
	return session.PromptPrefix + hex.EncodeToString(digest[:16])
}

// scriptText returns the given text, or the content of the file named after @.
func scriptText(given string) (string, error) {
	path, isFile := strings.CutPrefix(given, "@")
	if !isFile {
		return given, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read setup script: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, session.MaxSetupBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read setup script: %w", err)
	case len(data) > session.MaxSetupBytes:
		return "", fmt.Errorf("the setup script %s is larger than %d bytes", path, session.MaxSetupBytes)
	case strings.TrimSpace(string(data)) == "":
		return "", errors.New("the setup script " + path + " is empty")
	}
	return string(data), nil
}

// awaitRunning waits until a session without a prompt runs, and prints it.
func (c *sessionCreateCmd) awaitRunning(ctx context.Context, s streams, parent *sessionCmd, api *client.Client, made client.Session) error {
	err := c.during(ctx, "session "+made.ID, func(ctx context.Context) (err error) {
		made, err = cli.AwaitRunning(ctx, api, made.ID)
		return err
	})
	if err != nil {
		return err
	}
	if parent.json() {
		return printJSON(s.stdout, created{Session: made})
	}
	return parent.printSession(s.stdout, made)
}

// warn writes warnings of the API.
func warn(s streams, warnings []client.Warning) {
	for _, w := range warnings {
		fmt.Fprintln(s.stderr, "warning: "+w.Detail)
	}
}
