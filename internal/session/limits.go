package session

import "time"

// Limits of a session, all of them checked at the door and printed in the
// OpenAPI document.
const (
	DefaultIdleTimeout = 15 * time.Minute
	MinIdleTimeout     = time.Second
	MaxIdleTimeout     = 7 * 24 * time.Hour

	MaxQueued        = 1000      // prompts of one session that wait
	MaxAgentPrompts  = 10        // prompts that one agent sends to a session between two of people there
	MaxAgentDepth    = 10        // messages of agents that lead one to the other
	MaxPromptBytes   = 256 << 10 // content of one prompt
	MaxTitleRunes    = 200
	MaxMetadataBytes = 16 << 10
	MaxSetupBytes    = 64 << 10

	MaxCollected      = 50 // prompts that are joined to one, that one included
	MaxSteered        = 32 // prompts that one turn is given while it runs
	MaxCollectWindows = 10 // times that prompts are collected for, from the first on
	MinCollectWindow  = 100 * time.Millisecond
	MaxCollectWindow  = time.Minute
)

// Bounds of the time without anything but an open question after which a session sleeps.
const (
	defaultParkAfter = 3 * time.Minute
	MinParkAfter     = time.Second
	MaxParkAfter     = 24 * time.Hour
)
