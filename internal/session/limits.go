package session

import "time"

// Limits of a session. The api checks all of them; the OpenAPI document lists them.
const (
	DefaultIdleTimeout = 15 * time.Minute
	MinIdleTimeout     = time.Second
	MaxIdleTimeout     = 7 * 24 * time.Hour

	MaxQueued        = 1000      // queued prompts of one session
	MaxAgentPrompts  = 10        // prompts that one agent sends to a session between two prompts of people
	MaxAgentDepth    = 10        // messages in a chain between agents
	MaxPromptBytes   = 256 << 10 // content of one prompt
	MaxTitleRunes    = 200
	MaxMetadataBytes = 16 << 10
	MaxSetupBytes    = 64 << 10

	MaxCollected      = 50 // joined prompts, including the first
	MaxSteered        = 32 // prompts that are given to one running turn
	MaxCollectWindows = 10 // maximum duration of a collection, as a multiple of CollectFor
	MinCollectWindow  = 100 * time.Millisecond
	MaxCollectWindow  = time.Minute
)

// Bounds of the time after which a session sleeps if it only waits for a question.
const (
	defaultParkAfter = 3 * time.Minute
	MinParkAfter     = time.Second
	MaxParkAfter     = 24 * time.Hour
)
