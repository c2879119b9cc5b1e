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

// store keeps the agent's sessions as files, one each, which are complete at any time. It is safe
// for concurrent use.
type store struct {
	dir string

	mu    sync.Mutex
	dirty map[string]bool // sessions that have changed since the last save
	saved time.Time
	took  time.Duration // duration of the last save

	saving   sync.Mutex               // held while saving
	failures []opencodeformat.Failure // that OpenCode does not store
}

const failuresFile = "failures" + opencodeformat.TranscriptSuffix

// fail records a failure.
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

// failed returns the recorded failures.
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
	// saveInterval is how often a session is saved during a turn. A session that takes long to save
	// is saved less often, so that saving takes at most a twentieth of the time, within bounds.
	saveInterval    = time.Second
	maxSaveInterval = 10 * time.Second
	saveShare       = 20
)

// due reports whether it is time to save changes.
func (s *store) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dirty) > 0 && now.Sub(s.saved) >= min(max(saveInterval, saveShare*s.took), maxSaveInterval)
}

// touch records that a session has changed.
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

// keepSaving saves changes when due, until ctx is done. It does not wait for a reader of the
// bridge's output.
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

// save writes all sessions that have changed. A failed one is saved again the next time.
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
			continue // deleted meanwhile
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

// write replaces a file atomically.
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

// kept is a saved session.
type kept struct {
	info     opencodeformat.SessionInfo
	messages int
	file     string
}

// main returns the newest saved session that is not a subagent's, or false if none can be read.
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
