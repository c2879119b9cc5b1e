package session

import (
	"strconv"
	"strings"
)

// claimSeparator separates a run and the number of a later claim. Parts of a run have a different
// separator, see AgentRun.
const claimSeparator = "_"

// runIDLength is the length of allotted run ids.
const runIDLength = len(RunPrefix) + 32

// ClaimID returns the id of the n-th claim of a run's prompt. The first claim has the id of the
// run.
func ClaimID(runID string, n int) string {
	if n <= 1 {
		return runID
	}
	return runID + claimSeparator + strconv.Itoa(n)
}

// RunOf returns the run of a claim. Clients only see the run: a requeued prompt is claimed again,
// with the same run.
func RunOf(claimID string) string {
	if len(claimID) > runIDLength && strings.HasPrefix(claimID[runIDLength:], claimSeparator) {
		return claimID[:runIDLength]
	}
	return claimID
}
