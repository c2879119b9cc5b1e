package session

import "time"

// SandboxStatus is the last known status of the sandbox of a session.
type SandboxStatus string

// The statuses of a sandbox.
const (
	SandboxStarting   SandboxStatus = "starting"
	SandboxReady      SandboxStatus = "ready"
	SandboxUnhealthy  SandboxStatus = "unhealthy"
	SandboxTerminated SandboxStatus = "terminated"
)

// SandboxView is the sandbox of a session as clients see it.
type SandboxView struct {
	SandboxID       string        `json:"sandboxId"`
	Status          SandboxStatus `json:"status"`
	RestartCount    int64         `json:"restartCount"`
	LastHealthCheck time.Time     `json:"lastHealthCheck"`
	// Since is when its life began, Deadline when the provider ends it; zero if it does not.
	Since    time.Time `json:"-"`
	Deadline time.Time `json:"-"`
}

// SandboxRow is one sandbox that was asked for and has not been seen to end.
type SandboxRow struct {
	SessionID  string
	Generation int64
	SandboxID  string        // empty while its creation is under way
	ImageID    string        // what it starts from; of SandboxesOpen only
	Status     State         // of the session
	Health     SandboxStatus // as it was seen last
	Current    bool          // it is the session's newest generation
	// WorkspaceChanged: the workspace of the session was changed after the sandbox was reserved; of SandboxesOpen only.
	WorkspaceChanged bool
	ReservedAt       time.Time
	ReadyAt          time.Time // zero until its runner answered
	Deadline         time.Time // when the provider ends it; zero while its creation is under way
}

// UnsavedSandbox is a sandbox with work that no bundle covers.
type UnsavedSandbox struct {
	SandboxRow
	Waited time.Duration // how long the session has been restoring
}

// SandboxKey names the sandbox of a generation.
type SandboxKey struct {
	SessionID  string
	Generation int64
}

// SandboxSeen is the health of a sandbox as it was found.
type SandboxSeen struct {
	SandboxKey
	Status SandboxStatus
}
