package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sessionCmd works with sessions through the API of a running overwinter.
type sessionCmd struct {
	apiFlags

	Create     sessionCreateCmd      `cmd:"" help:"Create a session."`
	List       sessionListCmd        `cmd:"" help:"List sessions, newest first."`
	Show       sessionShowCmd        `cmd:"" help:"Show one session."`
	Prompt     sessionPromptCmd      `cmd:"" help:"Send a prompt; wakes a hibernated session."`
	Retry      sessionRetryCmd       `cmd:"" help:"Retry a prompt whose outcome is unknown."`
	Resolve    sessionResolveCmd     `cmd:"" help:"Record how a prompt whose outcome is unknown ended."`
	Dismiss    sessionDismissCmd     `cmd:"" help:"Cancel a prompt whose outcome is unknown."`
	Follow     sessionFollowCmd      `cmd:"" help:"Print the conversation of a session from its beginning, and follow it."`
	Attach     sessionAttachCmd      `cmd:"" help:"Show the latest blocks of a conversation and send typed lines as prompts."`
	Wake       sessionWakeCmd        `cmd:"" help:"Wake a session."`
	Hibernate  sessionHibernateCmd   `cmd:"" help:"Hibernate a session after its current turn."`
	Stop       sessionStopCmd        `cmd:"" help:"Terminate a session permanently."`
	Purge      sessionPurgeCmd       `cmd:"" help:"Terminate a session and erase everything stored for it."`
	Abort      sessionAbortCmd       `cmd:"" help:"Interrupt the current turn."`
	Recover    sessionRecoverCmd     `cmd:"" help:"Retry a session in error."`
	Sync       sessionSyncCmd        `cmd:"" help:"Snapshot a session after its current turn, and continue."`
	Restart    sessionRestartCmd     `cmd:"" help:"Move a session to a new sandbox, with its files and memory."`
	Drop       sessionDropCmd        `cmd:"" help:"Discard the sandbox and its files; keep the session."`
	Revert     sessionRevertCmd      `cmd:"" help:"Revert the agent, and with --files its workspace, to the state before a prompt or at a bundle."`
	Bundles    sessionBundlesCmd     `cmd:"" help:"List the bundles that a session can be restored from, newest first; pin or unpin one."`
	Fork       sessionForkCmd        `cmd:"" help:"Create a session that starts at a point of this one, with its files and memory."`
	Push       sessionPushCmd        `cmd:"" help:"Create a session that continues an agent's local session in a directory."`
	Pull       sessionPullCmd        `cmd:"" help:"Copy a session to a directory on this machine, where the agent's own resume command continues it."`
	Tree       sessionTreeCmd        `cmd:"" help:"Print the forks of a session, recursively."`
	Hold       sessionHoldCmd        `cmd:"" help:"Hold the queue: no prompt starts or wakes the session until a release."`
	Release    sessionReleaseCmd     `cmd:"" help:"Release the queue: queued prompts start."`
	Files      sessionFilesCmd       `cmd:"" help:"List the files of the workspace, or print one."`
	Attachment sessionAttachmentCmd  `cmd:"" help:"Print an attachment of a prompt, or an image of a tool's result."`
	Diff       sessionDiffCmd        `cmd:"" help:"Print the changes to the workspace since the session began."`
	Review     sessionReviewCmd      `cmd:"" help:"Ask the agent to review the changes to the workspace."`
	Git        sessionGitCmd         `cmd:"" help:"Print the branch and the commit of the workspace, and the pull request that the agent has recorded."`
	Shots      sessionScreenshotsCmd `cmd:"" name:"screenshots" help:"List the screenshots that the agent has saved, newest first; session attachment prints one."`
	Update     sessionUpdateCmd      `cmd:"" help:"Change a session: its title, options, metadata, profile or workspace."`
	Prompts    sessionPromptsCmd     `cmd:"" help:"List the prompts of a session."`
	Withdraw   sessionWithdrawCmd    `cmd:"" help:"Withdraw a prompt that is still queued."`
	Replace    sessionReplaceCmd     `cmd:"" help:"Replace the text of a prompt that is still queued."`
	Promote    sessionPromoteCmd     `cmd:"" help:"Move a queued prompt to the front of the queue."`
	Clear      sessionClearCmd       `cmd:"" help:"Cancel every queued prompt."`
	Transcript sessionTranscriptCmd  `cmd:"" help:"Print the agent's own transcript files, or one of them."`
	Open       sessionOpenCmd        `cmd:"" help:"Print the addresses of a session in Temporal's UI and in the API."`
	Why        sessionWhyCmd         `cmd:"" help:"Explain the state of a session, a prompt, a restore or a question."`
	Export     sessionExportCmd      `cmd:"" help:"Export a session and its workflow's history to a file."`
	Questions  sessionQuestionsCmd   `cmd:"" help:"List the agent's questions."`
	Answer     sessionAnswerCmd      `cmd:"" help:"Answer one of the agent's questions."`
}

// promptText returns the given text, or the content of standard input.
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
	// Metadata is sent unchecked; the API checks its limits.
	Metadata map[string]string `placeholder:"KEY=VALUE" help:"List only sessions whose metadata has this member."`
	Sort     string            `placeholder:"ORDER" help:"Sort by createdAt or lastActivityAt; a leading - sorts the newest first. Default -createdAt."`
	Cursor   string            `placeholder:"TEXT" help:"Continue after an earlier list: the nextCursor of its JSON."`
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
	return parent.with(func(api *client.Client) error {
		sessions, err := api.SessionList(ctx, client.List{Status: c.Status, Agent: c.Agent, Query: c.Query, Metadata: c.Metadata, Sort: c.Sort, Cursor: c.Cursor, Limit: c.Limit})
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, sessions)
		}
		return parent.printSessions(s.stdout, sessions.Items)
	})
}

// sessionArg names the session of a command.
type sessionArg struct {
	ID string `arg:"" help:"ID of the session, the unique beginning of one, or @last for the session that was created last."`
}

// on calls use with a client and the id of the command's session.
func (c *sessionCmd) on(ctx context.Context, arg sessionArg, use func(api *client.Client, id string) error) error {
	return c.with(func(api *client.Client) error {
		id, err := sessionID(ctx, api, arg.ID)
		if err != nil {
			return err
		}
		return use(api, id)
	})
}

// onPrompt is on for a prompt of the session.
func (c *sessionCmd) onPrompt(ctx context.Context, arg sessionArg, prompt string, use func(api *client.Client, id, promptID string) error) error {
	return c.on(ctx, arg, func(api *client.Client, id string) error {
		prompt, err := promptID(ctx, api, id, prompt)
		if err != nil {
			return err
		}
		return use(api, id, prompt)
	})
}

// sessionShowCmd shows one session.
type sessionShowCmd struct{ sessionArg }

// Run prints the session.
func (c *sessionShowCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		got, err := api.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		if err := parent.printSession(s.stdout, got); err != nil || parent.json() {
			return err
		}
		return parent.printOpen(ctx, s.stdout, api, got)
	})
}
