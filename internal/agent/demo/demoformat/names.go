package demoformat

import (
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// Name is the agent's name in the API.
const Name = "demo"

// Command is the word that makes overwinter-runner run Main.
const Command = "demo-agent"

// SessionID matches an id that may name the directory of a session's transcripts and be part of a
// glob pattern.
var SessionID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
