package session

import (
	"strconv"
	"strings"
)

// claimSeparator comes between a run and the number of a later claim of it. Parts of a run have another one, see AgentRun.
const claimSeparator = "_"

// runIDLength is how long the ids are that runs are allotted.
const runIDLength = len(RunPrefix) + 32

// ClaimID is the id of the n-th claim of the prompt that has a run. The first has the id of the run.
func ClaimID(runID string, n int) string {
	if n <= 1 {
		return runID
	}
	return runID + claimSeparator + strconv.Itoa(n)
}

// RunOf returns the run that a claim belongs to. Clients see only the run: a prompt that was queued again is claimed once more, and has the same run.
func RunOf(claimID string) string {
	if len(claimID) > runIDLength && strings.HasPrefix(claimID[runIDLength:], claimSeparator) {
		return claimID[:runIDLength]
	}
	return claimID
}
