package agent

import "github.com/overwinter-dev/overwinter/internal/transcript"

// Reverter is an adapter whose agent can be reverted to its state before a prompt.
type Reverter interface {
	// Revert returns the agent's transcript files without the run and everything after it. It is
	// pure, and returns an error if the files do not contain the run. The agent is stopped
	// meanwhile, and starts from the result.
	Revert(files []transcript.File, runID string) (Reverted, error)
}

// Reverted is an agent's memory after a revert.
type Reverted struct {
	// Files are the given files that remain, changed or not.
	Files []transcript.File
	// Remove lists absolute paths in the sandbox of other memory of the agent, such as an index of
	// the files. Directories are removed recursively.
	Remove []string
}
