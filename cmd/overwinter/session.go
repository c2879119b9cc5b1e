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
	"time"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/permission"
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

// sessionCreateCmd creates a session.
type sessionCreateCmd struct {
	Agent       string            `required:"" placeholder:"NAME" help:"Agent of the session, such as demo."`
	Title       string            `placeholder:"TEXT" help:"Title of the session."`
	Prompt      string            `placeholder:"TEXT" help:"First prompt; - reads it from standard input."`
	Eager       bool              `help:"Start the sandbox immediately instead of with the first prompt."`
	IdleTimeout string            `placeholder:"DURATION" help:"Idle time before the session hibernates, such as 30s. Default: the server's."`
	Model       string            `placeholder:"NAME" help:"Model for the agent. Default: the agent's choice."`
	Permissions string            `enum:"allow,ask,deny," default:"" placeholder:"POLICY" help:"Policy for the agent's tools: allow, ask or deny. Default: allow."`
	Metadata    map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Metadata of the session; can be repeated."`
}

// Run prints the session as it was created.
func (c *sessionCreateCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	create := apiclient.Create{Agent: c.Agent, Title: c.Title, IdleTimeout: c.IdleTimeout}
	if c.Eager {
		create.Sandbox = "eager"
	}
	if options := (session.Options{Model: c.Model, Permissions: permission.Policy(c.Permissions)}); options != (session.Options{}) {
		create.Options = &options
	}
	if len(c.Metadata) > 0 {
		create.Metadata = map[string]any{}
		for key, value := range c.Metadata {
			create.Metadata[key] = value
		}
	}
	if c.Prompt != "" {
		text, err := promptText(c.Prompt, s.stdin)
		if err != nil {
			return err
		}
		create.Prompt = &apiclient.FirstPrompt{Content: text}
	}
	return parent.with(func(client *apiclient.Client) error {
		created, err := client.SessionCreate(ctx, create)
		if err != nil {
			return err
		}
		for _, w := range created.Warnings {
			fmt.Fprintln(s.stderr, "warning: "+w.Detail)
		}
		return parent.printSession(s.stdout, created)
	})
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

// sessionShowCmd shows one session.
type sessionShowCmd struct{ sessionArg }

// Run prints the session.
func (c *sessionShowCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		got, err := client.SessionGet(ctx, c.ID)
		if err != nil {
			return err
		}
		return parent.printSession(s.stdout, got)
	})
}

// sessionWakeCmd wakes a session.
type sessionWakeCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *sessionWakeCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Wake, false)
}

// sessionHibernateCmd hibernates a session.
type sessionHibernateCmd struct {
	sessionArg
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Run asks and returns; follow shows what comes of it.
func (c *sessionHibernateCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Hibernate, c.Force)
}

// sessionStopCmd ends a session.
type sessionStopCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *sessionStopCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Stop, false)
}

// sessionPurgeCmd erases a session.
type sessionPurgeCmd struct {
	sessionArg
	Wait bool `help:"Return when everything is erased."`
}

// purgePoll is the time between two looks at a session that is being erased.
const purgePoll = 500 * time.Millisecond

// Run asks and returns; with --wait when the session is gone.
func (c *sessionPurgeCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		got, err := client.Purge(ctx, c.ID)
		if err != nil {
			return err
		}
		for c.Wait {
			_, err := client.SessionGet(ctx, c.ID)
			if refused, ok := errors.AsType[*apiclient.Error](err); ok && refused.Code == failure.NoSession {
				break
			}
			if err != nil {
				return err
			}
			select {
			case <-time.After(purgePoll):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if parent.json() {
			return printJSON(s.stdout, got)
		}
		if c.Wait {
			_, err = fmt.Fprintf(s.stdout, "%s  erased\n", got.ID)
		} else {
			_, err = fmt.Fprintf(s.stdout, "%s  %s: purge accepted\n", got.ID, got.Status)
		}
		return err
	})
}

// sessionAbortCmd interrupts the running turn.
type sessionAbortCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *sessionAbortCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Abort, false)
}

// sessionRecoverCmd tries again with a session in error.
type sessionRecoverCmd struct{ sessionArg }

// Run asks and returns; follow shows what comes of it.
func (c *sessionRecoverCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.command(ctx, s.stdout, c.ID, apiclient.Recover, false)
}

// command sends a session a command and prints whether there was anything to do.
func (c *sessionCmd) command(ctx context.Context, w io.Writer, id string, cmd apiclient.Command, force bool) error {
	return c.with(func(client *apiclient.Client) error {
		got, accepted, err := client.Command(ctx, id, cmd, force)
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(w, got)
		}
		outcome := "nothing to do"
		if accepted {
			outcome = string(cmd) + " accepted"
		}
		_, err = fmt.Fprintf(w, "%s  %s: %s\n", got.ID, got.Status, outcome)
		return err
	})
}

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
