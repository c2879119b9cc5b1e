package activities_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
)

// TestControlHasActivitiesOfAllGroups checks that no activity is missing, as one would be that two
// groups have at the same embedding depth. Workflows that are open, and recorded histories, call
// activities by these names.
func TestControlHasActivitiesOfAllGroups(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"AbortRun", "AnnounceDeadline",
		"BeginRun",
		"CancelPrompts",
		"CloseSession",
		"ContinueRun",
		"CreateSandbox",
		"DropSandbox",
		"EndCommand",
		"FlushSandbox",
		"OpenSession",
		"ReadWaiting",
		"Reconcile",
		"RecordStop",
		"RecordTransition",
		"RequeuePrompt",
		"RescueBundle",
		"RestoreSandbox",
		"ReturnRun",
		"RevertSession",
		"SaveBundle",
		"SettleRun",
		"TakeBack",
		"TellProblem",
		"TerminateSandbox",
	}, methodsOf(new(activities.Control)))
	require.Equal(t, []string{"RunTurn", "RunTurnWhenClaimed"}, methodsOf(new(activities.Turns)))
}

func methodsOf(activities any) []string {
	var names []string
	for method := range reflect.TypeOf(activities).Methods() {
		names = append(names, method.Name)
	}
	return names
}
