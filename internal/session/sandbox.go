package session

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
