package resource

import "github.com/overwinter-dev/overwinter/internal/session"

// CommandJSON is the JSON of a command.
type CommandJSON struct {
	ID       string                `json:"id"`
	Kind     session.CommandKind   `json:"kind"`
	Status   session.CommandStatus `json:"status"`
	Reason   string                `json:"reason,omitempty"`
	Force    bool                  `json:"force,omitempty"`
	PromptID string                `json:"promptId,omitempty"`
	// BundleID is the target of a revert that also restores Files.
	BundleID string `json:"bundleId,omitempty"`
	Files    bool   `json:"files,omitempty"`
	RunID    string `json:"runId,omitempty"`
	// RequestID is the X-Request-Id of the request that submitted it.
	RequestID string `json:"requestId,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	EndedAt   *Time  `json:"endedAt,omitempty"`
}

// Command converts c.
func Command(c session.Command) CommandJSON {
	kind, files := c.Kind, c.Kind == session.CommandRevertFiles
	if files {
		kind = session.CommandRevert
	}
	return CommandJSON{
		ID: c.ID, Kind: kind, BundleID: c.BundleID, Files: files, Status: c.Status, Reason: c.Reason, Force: c.Force, PromptID: c.PromptID, RunID: session.RunOf(c.RunID), RequestID: c.RequestID,
		CreatedAt: Time(c.CreatedAt), EndedAt: OptionalTime(c.EndedAt),
	}
}

// Commands converts a list; the result is never nil, so that it is [] in JSON.
func Commands(commands []session.Command) []CommandJSON {
	out := make([]CommandJSON, len(commands))
	for i, c := range commands {
		out[i] = Command(c)
	}
	return out
}
