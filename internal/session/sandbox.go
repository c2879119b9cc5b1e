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
	// Since is when it was created, Deadline when the provider ends it; zero if it does not.
	Since    time.Time `json:"-"`
	Deadline time.Time `json:"-"`
}

// SandboxRow is a requested sandbox without a recorded end.
type SandboxRow struct {
	SessionID  string
	Generation int64
	SandboxID  string        // empty while it is being created
	ImageID    string        // image that it starts from; only set by SandboxesOpen
	Status     State         // status of the session
	Health     SandboxStatus // last known health
	Current    bool          // it is the session's newest generation
	Transition int64         // number of the session's newest transition; only set by SandboxesOpen
	// WorkspaceChanged means that the workspace of the session was changed after the sandbox was
	// reserved; only set by SandboxesOpen.
	WorkspaceChanged bool
	ReservedAt       time.Time
	ReadyAt          time.Time // zero until its runner has responded
	Deadline         time.Time // when the provider ends it; zero while it is being created
}

// UnsavedSandbox is a sandbox with work that no bundle covers.
type UnsavedSandbox struct {
	SandboxRow
	Waited time.Duration // how long the session has been restoring
}

// SandboxKey identifies the sandbox of a generation.
type SandboxKey struct {
	SessionID  string
	Generation int64
}

// SandboxSeen is the observed health of a sandbox.
type SandboxSeen struct {
	SandboxKey
	Status SandboxStatus
}
