package runner

import (
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/portable"
)

// PackRequest is the stdin of pack.
type PackRequest struct {
	// Manifest contains the values that are known before the files are archived.
	Manifest   portable.Manifest `json:"manifest"`
	AgentFiles []string          `json:"agentFiles"` // absolute paths of the agent's own files
}

// Pack prints a portable archive of the workspace and the agent's own files. The runner need not be
// serving. binary may be any build of the program, because that of a snapshot may be too old to
// have this command.
func (p Paths) Pack(binary string, r PackRequest) Exec {
	return Exec{Argv: []string{binary, "pack", "--dir", p.State, "--workspace", p.Workspace}, Stdin: mustJSON(r)}
}

// Unpack returns the command that writes the portable archive on its stdin into the sandbox. It
// takes effect once per archive.
func (p Paths) Unpack(archiveID string) []string {
	return []string{p.Binary, "unpack", "--dir", p.State, "--home", p.Home, "--workspace", p.Workspace, "--archive", archiveID}
}

// UnpackedMark returns the file of a state directory that names the unpacked archive.
func UnpackedMark(state string) string { return filepath.Join(state, "workspace-unpacked") }
