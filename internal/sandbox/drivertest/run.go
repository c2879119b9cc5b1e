package drivertest

import "testing"

// Run runs the suite. The harness is made anew for each case; cases run in parallel.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, b *bench)
	}{
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

		{"NothingWorksAfterTerminate", afterTerminate},

		{"LostAnswerToCreate", lostCreate},
		{"LostAnswerToTerminate", lostTerminate},
		{"LostAnswerToSnapshot", lostSnapshot},
		{"SnapshotOverItsBudget", snapshotBudget},
		{"CallsEndWithTheirContext", callsEnd},

		{"ImagesAreFoundByName", imageNames},
		{"PreparesAnImageOnce", preparesOnce},
		{"PreparesAnImageOnceForManyCallers", preparesShared},
		{"LeavesNoBuilderBehind", preparesFails},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, setup(t, harness))
		})
	}
}
