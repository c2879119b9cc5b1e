package demoformat

import (
	"path/filepath"
)

// Where transcripts are, under the agent's home directory.
const (
	RootDir     = ".overwinter-demo"
	MainFile    = "transcript.jsonl"
	SubagentDir = "subagents"
	AllowedFile = "allowed"
)

func TranscriptDir(home, session string) string { return filepath.Join(home, RootDir, session) }
