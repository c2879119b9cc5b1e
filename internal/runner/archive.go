package runner

import (
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/portable"
)

// PackRequest is the stdin of pack.
type PackRequest struct {
	// Manifest has what is known of the archive before its files are.
	Manifest   portable.Manifest `json:"manifest"`
	AgentFiles []string          `json:"agentFiles"` // absolute paths of the agent's own files
}

// Pack prints a portable archive of the workspace and the agent's own files. The runner need not serve. It runs with any program at
// binary, as that of a snapshot may be too old to know the command.
func (p Paths) Pack(binary string, r PackRequest) Exec {
	return Exec{Argv: []string{binary, "pack", "--dir", p.State, "--workspace", p.Workspace}, Stdin: mustJSON(r)}
}

// Unpack is the command that writes the portable archive on its stdin into the sandbox, once for each archive.
func (p Paths) Unpack(archiveID string) []string {
	return []string{p.Binary, "unpack", "--dir", p.State, "--home", p.Home, "--workspace", p.Workspace, "--archive", archiveID}
}

// UnpackedMark is the file of a state directory that names the archive that was unpacked.
func UnpackedMark(state string) string { return filepath.Join(state, "workspace-unpacked") }
