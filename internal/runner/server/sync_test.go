package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner/journal"
)

// TestJournalsOfEarlierRunsAreClosedWithNextSync checks that the next sync closes the files, so
// that no prompt waits for the disk and no file stays open.
func TestJournalsOfEarlierRunsAreClosedWithNextSync(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Dir: t.TempDir()}, journals: map[string]*journal.Journal{}}
	require.NoError(t, os.Mkdir(s.runs(), 0o700))
	const runs = 20
	for i := range runs {
		_, before, err := s.openRun(fmt.Sprintf("run_%d", i), nil)
		require.NoError(t, err)
		require.NoError(t, s.closeRun(before))
	}
	require.Len(t, s.retired, runs-1)
	require.Equal(t, runs+1, openFiles(t, s.runs()), "their journals, and the ledger of those before")
	require.NoError(t, s.syncOnce())
	require.Equal(t, 2, openFiles(t, s.runs()), "the open run, and the ledger")
	require.False(t, s.named)
	require.NoError(t, os.Remove(s.openFile()))
	s.named = true
	require.NoError(t, s.syncOnce(), "a seal has removed the name of the open run")

	_, before, err := s.openRun("run_last", nil)
	require.NoError(t, err)
	require.NoError(t, s.closeRun(before))
	require.NoError(t, s.closeJournals())
	require.Zero(t, openFiles(t, s.runs()))
}

// TestNextRunCostsOneNewFile checks that the beginning of a run creates only its journal, and that a
// name leaves nothing of a longer one.
func TestNextRunCostsOneNewFile(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Dir: t.TempDir()}, journals: map[string]*journal.Journal{}}
	require.NoError(t, os.Mkdir(s.runs(), 0o700))
	var named os.FileInfo
	logs := map[string]os.FileInfo{}
	for i := range 2 * keepRuns {
		run := fmt.Sprintf("run_%d_%s", i, strings.Repeat("x", i%3*40))
		_, before, err := s.openRun(run, nil)
		require.NoError(t, err)
		require.NoError(t, s.closeRun(before))
		require.NoError(t, s.syncOnce())
		name, err := os.ReadFile(s.openFile())
		require.NoError(t, err)
		require.Equal(t, run, strings.TrimSpace(string(name)))
		info, err := os.Stat(s.openFile())
		require.NoError(t, err)
		require.True(t, named == nil || os.SameFile(named, info))
		named = info
		for earlier, before := range logs {
			now, err := os.Stat(earlier)
			if errors.Is(err, fs.ErrNotExist) {
				delete(logs, earlier)
				continue
			}
			require.NoError(t, err)
			require.True(t, os.SameFile(before, now))
		}
		path := filepath.Join(s.runs(), run+".log")
		logs[path], err = os.Stat(path)
		require.NoError(t, err)
	}
	entries, err := os.ReadDir(s.runs())
	require.NoError(t, err)
	require.Len(t, entries, keepRuns+1, "one file for all older runs")
	for i := range 2 * keepRuns {
		_, _, err := s.openRun(fmt.Sprintf("run_%d_%s", i, strings.Repeat("x", i%3*40)), nil)
		require.ErrorIs(t, err, fs.ErrExist)
	}
	require.NoError(t, s.closeJournals())
}

// TestWhatIsWrittenIsSynced checks that a sync follows each write.
func TestWhatIsWrittenIsSynced(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Dir: t.TempDir()}, journals: map[string]*journal.Journal{}, unsynced: make(chan struct{}, 1)}
	require.NoError(t, os.Mkdir(s.runs(), 0o700))
	ctx, stop := context.WithCancel(t.Context())
	var syncing sync.WaitGroup
	syncing.Go(func() { s.syncJournals(ctx, 10*time.Millisecond) })
	var before *journal.Journal
	for i := range 2 {
		var err error
		_, before, err = s.openRun(fmt.Sprintf("run_%d", i), nil)
		require.NoError(t, err)
		require.NoError(t, s.closeRun(before))
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.named && len(s.retired) == 0
		}, 2*time.Minute, 10*time.Millisecond)
	}
	require.NotNil(t, before)
	stop()
	syncing.Wait()
	require.NoError(t, s.closeJournals())
}

// openFiles counts the files of a directory that this process has open.
func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(name, dir+"/") {
			n++
		}
	}
	return n
}
