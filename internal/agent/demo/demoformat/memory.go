package demoformat

import (
	"path/filepath"
)

// Locations of transcripts, below the agent's home directory.
const (
	RootDir     = ".overwinter-demo"
	MainFile    = "transcript.jsonl"
	SubagentDir = "subagents"
	AllowedFile = "allowed"
)

// TranscriptDir returns the directory with the transcripts of a session.
func TranscriptDir(home, session string) string { return filepath.Join(home, RootDir, session) }
