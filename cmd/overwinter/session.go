package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sessionCmd works with sessions through the API of a running overwinter.
type sessionCmd struct {
	APIURL string       `name:"api-url" env:"OVERWINTER_API_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"URL of the API. Default ${default}."`
	APIKey secret.Value `name:"api-key" env:"OVERWINTER_API_KEY" placeholder:"KEY" help:"API key. Prefer OVERWINTER_API_KEY: other users can read arguments."`
	Output string       `short:"o" enum:"table,json" default:"table" placeholder:"FORMAT" help:"Output format: table or json. Default ${default}."`

	Create    sessionCreateCmd    `cmd:"" help:"Create a session."`
	List      sessionListCmd      `cmd:"" help:"List sessions, newest first."`
	Show      sessionShowCmd      `cmd:"" help:"Show one session."`
	Prompt    sessionPromptCmd    `cmd:"" help:"Send a prompt; wakes a hibernated session."`
	Retry     sessionRetryCmd     `cmd:"" help:"Run a prompt whose outcome is unknown again."`
	Resolve   sessionResolveCmd   `cmd:"" help:"Record how a prompt whose outcome is unknown ended."`
	Dismiss   sessionDismissCmd   `cmd:"" help:"Cancel a prompt whose outcome is unknown."`
	Follow    sessionFollowCmd    `cmd:"" help:"Print the conversation of a session from its beginning, and follow it."`
	Attach    sessionAttachCmd    `cmd:"" help:"Show the latest blocks of a conversation and send what is typed as prompts."`
	Wake      sessionWakeCmd      `cmd:"" help:"Wake a session."`
	Hibernate sessionHibernateCmd `cmd:"" help:"Hibernate a session after its current turn."`
	Stop      sessionStopCmd      `cmd:"" help:"Terminate a session permanently."`
	Purge     sessionPurgeCmd     `cmd:"" help:"Terminate a session and erase everything that is stored of it."`
	Abort     sessionAbortCmd     `cmd:"" help:"Interrupt the current turn."`
	Recover   sessionRecoverCmd   `cmd:"" help:"Retry a session in error."`
	Sync      sessionSyncCmd      `cmd:"" help:"Snapshot a session after its current turn, and continue."`
	Restart   sessionRestartCmd   `cmd:"" help:"Move a session to a new sandbox, with its files and memory."`
	Drop      sessionDropCmd      `cmd:"" help:"Discard the sandbox and its files; keep the session."`
	Revert    sessionRevertCmd    `cmd:"" help:"Revert the agent to its state before a prompt."`
	Files     sessionFilesCmd     `cmd:"" help:"List the files of the workspace, or print one."`
	Diff      sessionDiffCmd      `cmd:"" help:"Print the changes to the workspace since the session began."`
	Questions sessionQuestionsCmd `cmd:"" help:"List the agent's questions."`
	Answer    sessionAnswerCmd    `cmd:"" help:"Answer one of the agent's questions."`
}

// Validate checks the address before anything is asked of it.
func (c *sessionCmd) Validate() error {
	client, err := c.client()
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// warnPlain warns of a key that is readable on the network.
func (c *sessionCmd) warnPlain(logger *slog.Logger) {
	u, err := url.Parse(c.APIURL)
	if c.APIKey.Empty() || err != nil || u.Scheme != "http" || loopbackHost(u.Host) {
		return
	}
	logger.Warn("the API key is sent in clear text; use https:// unless the network is trusted", slog.String("host", u.Host))
}

func (c *sessionCmd) client() (*apiclient.Client, error) {
	return apiclient.New(c.APIURL, c.APIKey.Reveal())
}

// json reports whether the output is for programs.
func (c *sessionCmd) json() bool { return c.Output == "json" }

// with calls use with a client and closes it.
func (c *sessionCmd) with(use func(*apiclient.Client) error) error {
	client, err := c.client()
	if err != nil {
		return usageError{err.Error()}
	}
	defer client.Close()
	err = use(client)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no server listens at %s: start overwinter, or pass its address with --api-url", c.APIURL)
	}
	return err
}

// promptText is the text given, or what standard input holds.
func promptText(given string, stdin io.Reader) (string, error) {
	if given != "-" {
		return given, nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, session.MaxPromptBytes+1))
	if err != nil {
		return "", fmt.Errorf("read prompt: %w", err)
	}
	if len(data) > session.MaxPromptBytes {
		return "", fmt.Errorf("the prompt is larger than %d bytes", session.MaxPromptBytes)
	}
	return strings.TrimRight(string(data), "\n"), nil
}

// sessionListCmd lists sessions.
type sessionListCmd struct {
	Status string `placeholder:"STATUS" help:"List only sessions with this status, such as running."`
	Agent  string `placeholder:"NAME" help:"List only sessions of this agent."`
	Query  string `placeholder:"TEXT" help:"List only sessions with these words in their title, or whose ID starts with TEXT."`
	// Metadata is sent unchecked: the API has the bounds.
	Metadata map[string]string `placeholder:"KEY=VALUE" help:"List only sessions whose metadata has this member."`
	Sort     string            `placeholder:"ORDER" help:"Sort by createdAt or lastActivityAt; a preceding - is for the newest first. Default -createdAt."`
	Limit    int               `default:"50" placeholder:"N" help:"Maximum number of sessions; 0 lists all. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *sessionListCmd) Validate() error {
	if c.Limit < 0 {
		return errors.New("--limit must not be negative")
	}
	return nil
}

// Run prints one line for each session.
func (c *sessionListCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		sessions, err := client.SessionList(ctx, apiclient.List{Status: c.Status, Agent: c.Agent, Query: c.Query, Metadata: c.Metadata, Sort: c.Sort, Limit: c.Limit})
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, sessions)
		}
		return printSessions(s.stdout, sessions)
	})
}

// sessionArg names the session that a command is about.
type sessionArg struct {
	ID string `arg:"" help:"ID of the session."`
}

// on calls use with a client and the id of the session that a command is about.
func (c *sessionCmd) on(_ context.Context, arg sessionArg, use func(client *apiclient.Client, id string) error) error {
	return c.with(func(client *apiclient.Client) error { return use(client, arg.ID) })
}

// sessionShowCmd shows one session.
type sessionShowCmd struct{ sessionArg }

// Run prints the session.
func (c *sessionShowCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(client *apiclient.Client, id string) error {
		got, err := client.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		return parent.printSession(s.stdout, got)
	})
}

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
