package drivertest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type testCase struct {
	name string
	test func(t *testing.T, b *bench)
}

// Run runs the cases that need only the provider. It calls harness for each case; cases run in
// parallel and may share a provider.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	t.Helper()
	run(t, harness, []testCase{
		{"CreatesASandboxThatRunsAndIsListed", createsAndLists},
		{"ListsOnlyTheInstallation", listsOnlyTheInstallation},
		{"AdoptsItsOwnSandboxUnderATakenName", adopts},
		{"RefusesTheSandboxOfAnother", refuses},
		{"GivesANameAgainAfterTheEnd", nameIsFreed},
		{"SaysGoneOfAnUnknownImage", unknownImage},
		{"RunsTheFirstProcessAndKeepsItsCode", firstProcess},
		{"EndsAtItsLifetime", lifetime},
		{"SaysGoneOfAnUnknownSandbox", unknownSandbox},
		{"OpensByIDFromAnotherClient", opensByID},

		{"ExecKeepsStreamsApartAndGivesTheCode", execStreams},
		{"ExecHasDirectoryAndEnvironment", execEnvironment},
		{"ExecTalksBothWays", execTalks},
		{"ExecTakesAndGivesALot", execBig},
		{"RunKeepsTheHeadOfTooMuchOutput", runTruncates},
		{"ExecTellsTheSignal", execSignal},
		{"ExecOfNothingThatExists", execNotFound},
		{"ExecIsKilledAtItsTimeout", execTimeout},
		{"ExecEndsWithItsSandbox", execDies},
		{"ExecGoesOnWithoutItsCaller", execDetaches},
		{"ExecsRunAtOnce", execConcurrent},
		{"ExecRefusesWhatCanNotBe", execInvalid},

		{"FilesComeBackAsTheyWent", filesRoundTrip},
		{"FilesAreReplacedWithTheirMode", filesReplaced},
		{"FilesThatAreNotThere", filesMissing},
		{"FilesAreSharedWithProcesses", filesShared},

		{"RestoreHasTheFilesOfTheSnapshotAndDiverges", snapshotRestore},
		{"SnapshotOfARestoredSandbox", snapshotOfRestored},
		{"SnapshotIsOfOneMoment", snapshotConsistent},
		{"SnapshotOfTheDeadIsGone", snapshotDead},
		{"DeletedImageIsGone", imageDeleted},
		{"ExitSnapshotHasTheLastFiles", exitSnapshot},
		{"ImagesOfTheInstallationAreListed", imagesListed},
		{"RefusedConnectionsAreReported", refusalsReported},

		{"NothingWorksAfterTerminate", afterTerminate},

		{"CallsEndWithTheirContext", callsEnd},

		{"ImagesAreFoundByName", imageNames},
		{"PreparesAnImageOnce", preparesOnce},
		{"PreparesAnImageOnceForManyCallers", preparesShared},
		{"LeavesNoBuilderBehind", preparesFails},
	})
}

// RunFaults runs the cases that inject faults into the provider. Each needs its own provider, and a
// harness with Faults.
func RunFaults(t *testing.T, harness func(t *testing.T) Harness) {
	t.Helper()
	run(t, func(t *testing.T) Harness {
		t.Helper()
		h := harness(t)
		require.NotNil(t, h.Faults, "this harness can break nothing")
		return h
	}, []testCase{
		{"LostAnswerToCreate", lostCreate},
		{"LostAnswerToTerminate", lostTerminate},
		{"LostAnswerToSnapshot", lostSnapshot},
		{"LostAnswerToTheCreationOfABuilder", lostBuilder},
		{"SnapshotOverItsBudget", snapshotBudget},
		{"AMisleadingNotFoundIsNoDeath", misled},
		{"AWaitThatHangsEndsWithItsSandbox", waitHangs},
	})
}

func run(t *testing.T, harness func(t *testing.T) Harness, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, setup(t, harness))
		})
	}
}
