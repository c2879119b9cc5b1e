package agent

import "github.com/overwinter-dev/overwinter/internal/transcript"

// Profiled is an adapter that can give its agent a profile.
type Profiled interface {
	// ProfileFiles returns the files to generate from the launch's profile, with absolute paths in
	// the sandbox, in addition to the profile's own Files. They are written before the agent
	// starts. Like Launch, it is pure: the same input gives the same files.
	ProfileFiles(LaunchInput) ([]transcript.File, error)
}
