package run

import (
	"strconv"
	"time"
)

// ParkAtWork is the factor by which a run must be silent longer before it is parked although calls
// or subagents are running that no question concerns. Parking stops them.
const ParkAtWork = 10

// Parking is a request to park a run: its session sleeps until the run's questions are answered.
type Parking struct {
	RunID string
	Token string // token of the attempt, which ends
	// AtWork parks the run even if calls or subagents are running that no question concerns.
	AtWork bool
}

// Continuation is the result of a request to continue a parked run in a sandbox.
type Continuation struct {
	Granted  bool
	Ended    bool      // it has ended
	Until    time.Time // if neither, when an open question expires
	Dispatch int64
	Part     int64
}

// AgentID returns the id of a run for its agent and the runner: each part has its own, since the
// restored files contain the journal of the previous part.
func AgentID(runID string, part int64) string {
	if part == 0 {
		return runID
	}
	return runID + "-" + strconv.FormatInt(part, 10)
}
