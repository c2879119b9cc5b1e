package agent

import "github.com/overwinter-dev/overwinter/internal/transcript"

// Reverter is an adapter whose agent can be reverted to before a prompt.
type Reverter interface {
	// Revert returns the agent's transcript files as they would be had the run, and all that came
	// after it, never been. It is pure, and fails where the run is not in them. The agent is not
	// running meanwhile, and starts from the result.
	Revert(files []transcript.File, runID string) (Reverted, error)
}

// Reverted is an agent's memory after a revert.
type Reverted struct {
	// Files are all files that were given and are left, changed or not.
	Files []transcript.File
	// Remove are absolute paths in the sandbox of whatever else remembers, such as an index of the
	// files; a directory goes with all that is in it.
	Remove []string
}
