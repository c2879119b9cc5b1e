package client

import (
	"context"
	"net/http"
)

// CommandKind is what a command does.
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

// CommandStatus says how far a command has come.
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
	RunID    string        `json:"runId,omitempty"`
	// RequestID is the X-Request-Id of the request that submitted it.
	RequestID string `json:"requestId,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	EndedAt   *Time  `json:"endedAt,omitempty"`
}

// Command sends a session a command. Accepted is false if there was nothing to do. Force is for
// Hibernate, RestartEnvironment and TerminateEnvironment.
func (c *Client) Command(ctx context.Context, id string, kind CommandKind, force bool) (s Session, accepted bool, err error) {
	body := map[string]bool{}
	if force {
		body["force"] = true
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(id)+"/"+string(kind), body, &s)
	return s, status == http.StatusAccepted, err
}

// Revert takes a session's agent back to before a prompt, after the running turn or at once with force.
func (c *Client) Revert(ctx context.Context, sessionID, promptID string, force bool) (s Session, err error) {
	body := map[string]any{"promptId": promptID}
	if force {
		body["force"] = true
	}
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/revert", body, &s)
	return s, err
}
