package opencodebridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// store keeps the agent's sessions as files: each its own, whole at every moment. It is safe for
// concurrent use.
type store struct {
	dir string

	mu    sync.Mutex
	dirty map[string]bool // sessions that have changed since they were saved
	saved time.Time
	took  time.Duration // the last time

	saving   sync.Mutex               // held while saving
	failures []opencodeformat.Failure // that OpenCode does not note
}

const failuresFile = "failures" + opencodeformat.TranscriptSuffix

// fail notes a failure.
func (s *store) fail(f opencodeformat.Failure) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.failures == nil {
		s.failures = s.failed()
	}
	s.failures = append(s.failures, f)
	data, err := json.Marshal(opencodeformat.FailureList{Failures: s.failures})
	if err != nil {
		return fmt.Errorf("note a failure: %w", err)
	}
	if err := s.write(failuresFile, append(data, '\n')); err != nil {
		return fmt.Errorf("note a failure: %w", err)
	}
	return nil
}

// failed are the failures that were noted before.
func (s *store) failed() []opencodeformat.Failure {
	data, err := os.ReadFile(filepath.Join(s.dir, failuresFile))
	if err != nil {
		return nil
	}
	var f opencodeformat.FailureList
	if json.Unmarshal(data, &f) != nil {
		return nil
	}
	return f.Failures
}

const (
	// saveInterval is how often a session is saved while a turn runs. One that takes long to save is
	// saved less often, so that it costs at most a twentieth of the time, within reason.
	saveInterval    = time.Second
	maxSaveInterval = 10 * time.Second
	saveShare       = 20
)

// due reports whether it is time to save what has changed.
func (s *store) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dirty) > 0 && now.Sub(s.saved) >= min(max(saveInterval, saveShare*s.took), maxSaveInterval)
}

// touch notes that a session has changed.
func (s *store) touch(sessionID string) {
	if sessionID == "" || sessionID != filepath.Base(sessionID) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty == nil {
		s.dirty = map[string]bool{}
	}
	s.dirty[sessionID] = true
}

// keepSaving saves changes whenever it is time, until ctx is over. It does not wait for a reader of
// the bridge's output.
func (s *store) keepSaving(ctx context.Context, from *server, stderr io.Writer) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if !s.due(now) {
				continue
			}
			if err := s.save(ctx, from); err != nil && ctx.Err() == nil {
				fmt.Fprintf(stderr, "opencode bridge: %v\n", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// save writes all sessions that have changed. What fails is tried again with the next.
func (s *store) save(ctx context.Context, from *server) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = nil
	s.mu.Unlock()
	begun := time.Now()
	var errs []error
	for id := range dirty {
		data, err := from.export(ctx, id)
		var status *statusError
		switch {
		case errors.As(err, &status) && status.code == http.StatusNotFound:
			continue // it has been deleted
		case err == nil:
			err = s.write(id+opencodeformat.TranscriptSuffix, data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("save session %s: %w", id, err))
			s.touch(id)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = time.Now()
	s.took = s.saved.Sub(begun)
	return errors.Join(errs...)
}

// write puts a file in its place at once.
func (s *store) write(name string, data []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(s.dir, ".saving-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Close()); err != nil {
		_ = os.Remove(temp.Name())
		return err
	}
	return os.Rename(temp.Name(), filepath.Join(s.dir, name))
}

// kept is a session that was saved.
type kept struct {
	info     opencodeformat.SessionInfo
	messages int
	file     string
}

// main is the newest saved session that is not a subagent's; false where there is none that can be read.
func (s *store) main() (kept, bool) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+opencodeformat.TranscriptSuffix))
	if err != nil {
		return kept{}, false
	}
	var best kept
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		info, messages, err := opencodeformat.ExportInfo(data)
		if err != nil || info.ParentID != "" || strings.TrimSuffix(filepath.Base(name), opencodeformat.TranscriptSuffix) != info.ID {
			continue
		}
		if best.file == "" || info.Time.Created > best.info.Time.Created {
			best = kept{info: info, messages: messages, file: name}
		}
	}
	return best, best.file != ""
}
