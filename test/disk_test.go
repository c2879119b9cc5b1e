package test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullDisk fills the disk that Postgres, Temporal and the sandboxes share, and empties it
// again. Accepted prompts are executed, refused ones get 503, and no intervention is needed.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "overwinter-disk-*") //nolint:usetesting // its parents must be open to another user
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(dir) })
	mount := func() error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=768m,mode=755") }
	if err := mount(); err != nil {
		t.Skipf("a small file system cannot be mounted here (%v): run as root", err)
	}
	t.Cleanup(func() { // after the stack, whose clean-up is newer
		eventually(t, within, "the file system can be unmounted", func() error { return syscall.Unmount(dir, 0) })
	})
	s := launch(t, nil, filepath.Join(dir, "data"))
	awake, sleeping := s.create(t, object{}), s.create(t, object{})
	for _, id := range []string{awake, sleeping} {
		s.prompt(t, id, "first", "write kept.txt: kept")
		require.Equal(t, "completed", s.waitPrompt(t, id, "first", settleWithin)["status"])
	}
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+sleeping+"/hibernate", nil)
	s.waitStatus(t, sleeping, "hibernated", settleWithin)
	s.prompt(t, awake, "working", "slow 200ms: one two three four five six seven eight nine ten")

	s.fillDisk(t)
	eventually(t, settleWithin, "readiness reports that the disk is full", func() error {
		if isReady("http://"+s.api+"/readyz") == nil {
			return errors.New("ready")
		}
		return nil
	})
	accepted := map[string]string{} // session by prompt
	for _, id := range []string{awake, sleeping} {
		for i := range 3 {
			prompt := fmt.Sprintf("full%d", i)
			status, got, err := s.call("POST", "/api/sessions/"+id+"/prompts", object{"id": prompt, "content": "cat"})
			if err == nil && status == http.StatusAccepted {
				accepted[id+"/prompts/"+prompt] = id
				continue
			}
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, status, "%v", got)
		}
	}
	require.NoError(t, os.Remove(s.filler()))
	s.waitReady(t)
	for _, id := range []string{awake, sleeping} {
		s.prompt(t, id, "after", "$ cat kept.txt\nrecall")
		require.Equal(t, "completed", s.waitPrompt(t, id, "after", settleWithin)["status"])
		require.Contains(t, s.text(t, id), "kept")
		for path, session := range accepted {
			if session == id {
				_, got, err := s.call("GET", "/api/sessions/"+path, nil)
				require.NoError(t, err)
				require.Equal(t, "completed", got["status"], "%v", got)
			}
		}
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/stop", nil)
		s.waitStatus(t, id, "terminated", settleWithin)
	}
	require.Equal(t, "completed", s.waitPrompt(t, awake, "working", time.Second)["status"])
}

func (s *stack) filler() string { return filepath.Join(filepath.Dir(s.dir), "filler") }

// fillDisk writes until the disk is full.
func (s *stack) fillDisk(t *testing.T) {
	t.Helper()
	f, err := os.Create(s.filler())
	require.NoError(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		block := make([]byte, size)
		for err == nil {
			_, err = f.Write(block)
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		err = nil
	}
}
