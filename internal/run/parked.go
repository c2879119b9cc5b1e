package run

import (
	"strconv"
	"time"
)

// ParkAtWork is how many times as long a run must be silent as another before it is parked although calls or subagents are at work that
// no question is about. They are stopped.
const ParkAtWork = 10

// Parking asks for a run to be parked: its session sleeps until the questions of it are answered.
type Parking struct {
	RunID string
	Token string // of the attempt, which ends
	// AtWork: also if calls or subagents are at work that no question is about.
	AtWork bool
}

// Continuation is the result of a request to continue a parked run in a sandbox.
type Continuation struct {
	Granted  bool
	Over     bool      // it has ended
	Until    time.Time // neither: a question is open until then
	Dispatch int64
	Part     int64
}

// AgentID is the name of a run for its agent and the runner: each part has its own, since the journal of the part before is in
// the files that were restored.
func AgentID(runID string, part int64) string {
	if part == 0 {
		return runID
	}
	return runID + "-" + strconv.FormatInt(part, 10)
}
