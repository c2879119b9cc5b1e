package client

import (
	"context"
	"net/http"
)

// CommandKind is the kind of a command.
type CommandKind string

// The commands.
const (
	Wake      CommandKind = "wake"
	Hibernate CommandKind = "hibernate"
	Stop      CommandKind = "stop"
	Abort     CommandKind = "abort"
	Recover   CommandKind = "recover"
	Sync      CommandKind = "sync"
	// RestartEnvironment moves a session to a new sandbox; TerminateEnvironment discards its sandbox.
	RestartEnvironment   CommandKind = "environment/restart"
	TerminateEnvironment CommandKind = "environment/terminate"
	// RevertCommand is sent by Client.Revert.
	RevertCommand CommandKind = "revert"
)

// CommandStatus is the progress of a command.
type CommandStatus string

// The statuses of a command.
const (
	CommandPending    CommandStatus = "pending"
	CommandApplied    CommandStatus = "applied"
	CommandSuperseded CommandStatus = "superseded"
	CommandRefused    CommandStatus = "refused"
)

// Command is a command that was accepted.
type Command struct {
	ID       string        `json:"id"`
	Kind     CommandKind   `json:"kind"`
	Status   CommandStatus `json:"status"`
	Reason   string        `json:"reason,omitempty"`
	Force    bool          `json:"force,omitempty"`
	PromptID string        `json:"promptId,omitempty"`
	// BundleID is the target of a revert that also restores files.
	BundleID string `json:"bundleId,omitempty"`
	Files    bool   `json:"files,omitempty"`
	RunID    string `json:"runId,omitempty"`
	// RequestID is the X-Request-Id of the request that submitted it.
	RequestID string `json:"requestId,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	EndedAt   *Time  `json:"endedAt,omitempty"`
}

// Command sends a session a command. Accepted is false if the command had no effect. Force applies
// to Hibernate, RestartEnvironment and TerminateEnvironment.
func (c *Client) Command(ctx context.Context, id string, kind CommandKind, force bool) (s Session, accepted bool, err error) {
	body := map[string]bool{}
	if force {
		body["force"] = true
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(id)+"/"+string(kind), body, &s)
	return s, status == http.StatusAccepted, err
}

// Revert is the target of a revert: a bundle, or the state before a prompt.
type Revert struct {
	BundleID string `json:"bundleId,omitempty"`
	PromptID string `json:"promptId,omitempty"`
	// Files also reverts the files of the workspace. Default (nil): true for a bundle, false for a
	// prompt.
	Files *bool `json:"files,omitempty"`
	Force bool  `json:"force,omitempty"` // interrupt the running turn
}

// SessionRevert reverts a session after the running turn, or immediately with Force.
func (c *Client) SessionRevert(ctx context.Context, sessionID string, r Revert) (s Session, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/revert", r, &s)
	return s, err
}

// Revert reverts a session's agent to its state before a prompt, after the running turn or, with
// force, immediately. Files stay unchanged.
func (c *Client) Revert(ctx context.Context, sessionID, promptID string, force bool) (s Session, err error) {
	return c.SessionRevert(ctx, sessionID, Revert{PromptID: promptID, Force: force})
}
