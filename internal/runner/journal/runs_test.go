package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// closed leaves the journal of a run in dir, with marks and ten frames between the first and the
// last.
func closed(t *testing.T, dir, run string, marks ...Mark) {
	t.Helper()
	j, err := Create(dir, run, Delivering)
	require.NoError(t, err)
	for _, m := range marks[:len(marks)-1] {
		require.NoError(t, j.Mark(m))
	}
	fill(t, j, 10)
	require.NoError(t, j.Mark(marks[len(marks)-1]))
	require.NoError(t, j.Close())
}

// names returns the names of the files in dir.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// status returns the state of a run as another process finds it.
func status(t *testing.T, dir, run string) Status {
	t.Helper()
	var runs Runs
	known, err := runs.Exists(dir, run)
	require.NoError(t, err)
	require.True(t, known)
	_, err = runs.Create(dir, run, Delivering)
	require.ErrorIs(t, err, fs.ErrExist)
	j, err := runs.Open(dir, run)
	require.NoError(t, err)
	defer j.Close()
	return j.Status()
}

func TestForgetsOldFramesButNeverRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const total = 7
	create := func(i int) {
		run, marks := fmt.Sprint("run_", i), []Mark{Delivered, Closed}
		if i == 1 {
			marks = marks[1:]
		}
		closed(t, dir, run, marks...)
		at := time.Unix(int64(1000+i), 0)
		require.NoError(t, os.Chtimes(filepath.Join(dir, run+".log"), at, at))
	}
	for i := range total {
		create(i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run_1.idx"), make([]byte, 40), 0o600)) // of an earlier version
	var runs Runs
	for range 2 { // repeating has no effect
		require.NoError(t, runs.Forget(dir, 4))
		require.Equal(t, []string{ledgerName, "run_3.log", "run_4.log", "run_5.log", "run_6.log"}, names(t, dir))
	}
	require.NoError(t, runs.Forget(dir, 99))
	create(total) // by no run of this process
	require.NoError(t, runs.Forget(dir, 0))
	require.Equal(t, []string{ledgerName, "run_7.log"}, names(t, dir), "the directory is read once only")
	require.NoError(t, runs.Close())

	for i := range total {
		want := Status{Mark: Closed, Delivered: true}
		if i == 1 {
			want = Status{Mark: Cut}
		}
		require.Equal(t, want, status(t, dir, fmt.Sprint("run_", i)), "run %d", i)
	}
	known, err := new(Runs).Exists(dir, "run_8")
	require.NoError(t, err)
	require.False(t, known)
	_, err = new(Runs).Open(dir, "run_8")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestEndedRunIsForgottenUnread checks that the log of a run of this process is not read.
func TestEndedRunIsForgottenUnread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		marks []Mark
		want  Status
	}{
		"closed":        {[]Mark{Delivering, Delivered, Closed}, Status{Mark: Closed, Delivered: true}},
		"sealed":        {[]Mark{Delivering, Delivered, Sealed}, Status{Mark: Closed, Delivered: true}},
		"cut":           {[]Mark{Delivering, Delivered, Cut}, Status{Mark: Cut}},
		"not delivered": {[]Mark{Delivering, Closed}, Status{Mark: Cut}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var runs Runs
			j, err := runs.Create(dir, "run_1", Delivering)
			require.NoError(t, err)
			defer j.Close()
			fill(t, j, 10)
			runs.End(j)
			require.Nil(t, runs.whole[0].final, "the run has not ended")
			for _, m := range c.marks {
				require.NoError(t, j.Mark(m))
			}
			runs.End(j)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "run_1.log"), bytes.Repeat([]byte("unreadable"), 100), 0o600))
			require.NoError(t, runs.Forget(dir, 0))
			require.Equal(t, []string{ledgerName}, names(t, dir))
			require.NotNil(t, runs.Unsynced())
			require.Nil(t, runs.Unsynced())
			require.NoError(t, runs.Close())
			require.Equal(t, c.want, status(t, dir, "run_1"))
		})
	}
}

// TestForgottenRunThatIsOpenedIsForgottenAgain checks that the journal that Open makes for a run of
// the ledger does not stay.
func TestForgottenRunThatIsOpenedIsForgottenAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closed(t, dir, "run_1", Delivered, Closed)
	var runs Runs
	require.NoError(t, runs.Forget(dir, 0))
	closed(t, dir, "run_2", Delivered, Closed)
	runs.whole = append(runs.whole, wholeRun{name: "run_2"})
	j, err := runs.Open(dir, "run_1")
	require.NoError(t, err)
	require.Equal(t, Status{Mark: Closed, Delivered: true}, j.Status())
	require.NoError(t, j.Close())
	require.NoError(t, runs.Forget(dir, 1))
	require.Equal(t, []string{ledgerName, "run_2.log"}, names(t, dir))
	require.NoError(t, runs.Close())
	ledger, err := os.ReadFile(filepath.Join(dir, ledgerName))
	require.NoError(t, err)
	require.Equal(t, "run_1 delivered\n", string(ledger))
}

// TestShortLogsOfEarlierReleasesAreMovedToLedger checks the logs that these left of each old run.
func TestShortLogsOfEarlierReleasesAreMovedToLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for run, marks := range map[string][]Mark{"run_1": {Delivered, Closed}, "run_2": {Cut}} {
		j, err := Create(dir, run, Delivering)
		require.NoError(t, err)
		for _, m := range marks {
			require.NoError(t, j.Mark(m))
		}
		require.NoError(t, j.Close())
		info, err := os.Stat(filepath.Join(dir, run+".log"))
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), shortSize)
	}
	short, err := Create(dir, "run_3", Delivering)
	require.NoError(t, err)
	fill(t, short, 1)
	require.NoError(t, short.Close())
	var runs Runs
	begun, err := runs.Create(dir, "run_4", Delivering) // as short
	require.NoError(t, err)
	defer begun.Close()
	require.NoError(t, runs.Forget(dir, 2))
	require.Equal(t, []string{ledgerName, "run_3.log", "run_4.log"}, names(t, dir))
	require.NoError(t, runs.Close())
	require.Equal(t, Status{Mark: Closed, Delivered: true}, status(t, dir, "run_1"))
	require.Equal(t, Status{Mark: Cut}, status(t, dir, "run_2"))
}

// TestManyShortLogsAreMovedInSteps checks that no call takes long, and that all are moved.
func TestManyShortLogsAreMovedInSteps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const logs = 2*shortAtOnce + 20
	for i := range logs {
		j, err := Create(dir, fmt.Sprint("run_", i), Delivering)
		require.NoError(t, err)
		require.NoError(t, errors.Join(j.mark(Cut), j.Close()))
	}
	var runs Runs
	for _, left := range []int{logs - shortAtOnce, logs - 2*shortAtOnce, 0} {
		require.NoError(t, runs.Forget(dir, 16))
		require.Len(t, names(t, dir), left+1)
		for _, run := range []string{"run_0", fmt.Sprint("run_", logs-1)} {
			known, err := runs.Exists(dir, run)
			require.NoError(t, err)
			require.True(t, known)
		}
	}
	require.NoError(t, runs.Close())
}

// TestWhatIsNoLogStaysUntouched checks what a hostile program may put next to the logs: a pipe would
// block a reader, and a link leads to another file.
func TestWhatIsNoLogStaysUntouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe.log"), 0o600))
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "link.log")))
	closed(t, dir, "run_1", Delivered, Closed)
	var runs Runs
	require.Error(t, runs.Forget(dir, 0))
	require.NoError(t, runs.Close())
	require.Equal(t, []string{ledgerName, "link.log", "pipe.log"}, names(t, dir))
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
}

// TestInterruptedLineOfLedgerIsOverwritten cuts the ledger at each of its bytes: complete lines count,
// and the next run is added after them.
func TestInterruptedLineOfLedgerIsOverwritten(t *testing.T) {
	t.Parallel()
	const whole = "run_1 delivered\nrun_2 cut\nrun_long_name_3 delivered\n"
	for n := range len(whole) + 1 {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, ledgerName), []byte(whole[:n]), 0o600))
		closed(t, dir, "r", Delivered, Closed)
		var runs Runs
		require.NoError(t, runs.Forget(dir, 0))
		require.NoError(t, runs.Close())
		require.Equal(t, Status{Mark: Closed, Delivered: true}, status(t, dir, "r"), "%d bytes", n)
		var l ledger
		for i, run := range []string{"run_1", "run_2", "run_long_name_3"} {
			delivered, ended, err := l.find(dir, run)
			require.NoError(t, err)
			require.Equal(t, strings.Count(whole[:n], "\n") > i, ended, "%d bytes, %s", n, run)
			require.Equal(t, ended && i != 1, delivered)
		}
	}
}

// TestLedgerThatIsNoFileIsReplaced checks what a hostile program may put in its place.
func TestLedgerThatIsNoFileIsReplaced(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "in it"), 0o700) },
		"a link": func(path string) error {
			target := filepath.Join(t.TempDir(), "target")
			if err := os.WriteFile(target, []byte("run_1 cut\n"), 0o600); err != nil {
				return err
			}
			return os.Symlink(target, path)
		},
		"bytes": func(path string) error { return os.WriteFile(path, []byte("\x00run_1 delivered\n run_2\n\xff"), 0o600) },
		"too much": func(path string) error {
			err := os.WriteFile(path, nil, 0o600)
			if err == nil {
				err = os.Truncate(path, maxLedger+1)
			}
			return err
		},
	} {
		dir := t.TempDir()
		require.NoError(t, put(filepath.Join(dir, ledgerName)), name)
		closed(t, dir, "run_1", Delivered, Closed)
		var runs Runs
		require.NoError(t, runs.Forget(dir, 0), name)
		require.NoError(t, runs.Close())
		require.Equal(t, Status{Mark: Closed, Delivered: true}, status(t, dir, "run_1"), name)
	}
}

// TestFramesAreKeptWhileLedgerCannotBeWritten checks that no journal is deleted before its run is in the
// ledger, for example while the disk is full.
func TestFramesAreKeptWhileLedgerCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var runs Runs
	closed(t, dir, "run_1", Delivered, Closed)
	require.NoError(t, runs.Forget(dir, 0))
	require.NotNil(t, runs.Unsynced())
	runs.NotSynced()
	require.NotNil(t, runs.Unsynced(), "its sync has failed")

	j, err := runs.Create(dir, "run_2", Delivering)
	require.NoError(t, err)
	require.NoError(t, errors.Join(j.Mark(Delivered), j.Mark(Closed), j.Close()))
	require.NoError(t, runs.ledger.file.Close())
	require.ErrorContains(t, runs.Forget(dir, 0), "run_2")
	require.Nil(t, runs.Unsynced())
	require.Equal(t, []string{ledgerName, "run_2.log"}, names(t, dir))

	runs.ledger.file = nil
	require.NoError(t, runs.Forget(dir, 0))
	require.NoError(t, runs.Close())
	for _, run := range []string{"run_1", "run_2"} {
		require.Equal(t, Status{Mark: Closed, Delivered: true}, status(t, dir, run))
	}
}

// A run whose frames could not be discarded, for example because the disk is full, is tried again.
func TestFramesThatCouldNotBeForgottenAreForgottenLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var runs Runs
	for i := range 2 {
		j, err := runs.Create(dir, fmt.Sprint("run_", i), Delivering)
		require.NoError(t, err)
		fill(t, j, 10)
		require.NoError(t, j.Close())
	}
	log := filepath.Join(dir, "run_0.log")
	require.NoError(t, os.Rename(log, log+".aside"))
	require.NoError(t, os.Mkdir(log, 0o700)) // it cannot be read
	require.Error(t, runs.Forget(dir, 1))
	require.NoError(t, os.RemoveAll(log))
	require.NoError(t, os.Rename(log+".aside", log))
	require.NoError(t, runs.Forget(dir, 1))
	require.Equal(t, []string{ledgerName, "run_1.log"}, names(t, dir))
	require.NoError(t, runs.Close())
	require.Equal(t, Status{Mark: Cut}, status(t, dir, "run_0"))
}
