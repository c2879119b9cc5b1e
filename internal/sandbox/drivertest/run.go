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
		{"CreatedSandboxRunsAndIsListed", createsAndLists},
		{"ListsOnlyTheInstallation", listsOnlyTheInstallation},
		{"AdoptsOwnSandboxByName", adopts},
		{"RefusesForeignSandbox", refuses},
		{"NameIsReusableAfterEnd", nameIsFreed},
		{"UnknownImageIsGone", unknownImage},
		{"FirstProcessKeepsExitCode", firstProcess},
		{"EndsAtItsLifetime", lifetime},
		{"UnknownSandboxIsGone", unknownSandbox},
		{"OpensByIDFromAnotherClient", opensByID},

		{"ExecSeparatesStreamsAndReturnsCode", execStreams},
		{"ExecHasDirectoryAndEnvironment", execEnvironment},
		{"ExecIsBidirectional", execTalks},
		{"ExecTransfersMuchData", execBig},
		{"RunTruncatesOutput", runTruncates},
		{"ExecReportsSignal", execSignal},
		{"ExecOfMissingProgram", execNotFound},
		{"ExecIsKilledAtItsTimeout", execTimeout},
		{"ExecEndsWithItsSandbox", execDies},
		{"ExecContinuesWithoutCaller", execDetaches},
		{"ExecsRunAtOnce", execConcurrent},
		{"ExecRejectsInvalidSpec", execInvalid},

		{"FilesRoundTrip", filesRoundTrip},
		{"FilesAreReplacedWithTheirMode", filesReplaced},
		{"MissingFiles", filesMissing},
		{"FilesAreSharedWithProcesses", filesShared},

		{"RestoreHasTheFilesOfTheSnapshotAndDiverges", snapshotRestore},
		{"SnapshotOfARestoredSandbox", snapshotOfRestored},
		{"SnapshotIsConsistent", snapshotConsistent},
		{"SnapshotOfDeadSandboxIsGone", snapshotDead},
		{"DeletedImageIsGone", imageDeleted},
		{"ExitSnapshotHasTheLastFiles", exitSnapshot},
		{"ImagesOfTheInstallationAreListed", imagesListed},
		{"RefusedConnectionsAreReported", refusalsReported},

		{"NothingWorksAfterTerminate", afterTerminate},

		{"CallsEndWithTheirContext", callsEnd},

		{"ImagesAreFoundByName", imageNames},
		{"PreparesAnImageOnce", preparesOnce},
		{"PreparesAnImageOnceForManyCallers", preparesShared},
		{"FailedPrepareLeavesNoBuilder", preparesFails},
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
		{"LostResponseToCreate", lostCreate},
		{"LostResponseToTerminate", lostTerminate},
		{"LostResponseToSnapshot", lostSnapshot},
		{"LostResponseToCreateOfBuilder", lostBuilder},
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
