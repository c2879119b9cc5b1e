package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/follow"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
)

// seal stops the agent and calls quiet, sends the rest of the transcripts and the changes of the
// workspace with send, and syncs everything to disk. With describe, the answer describes a workspace
// without a repository: with one, git may still write to it, so the caller describes it later.
func (s *Server) seal(r *runner.SealRequest, quiet func() error, describe bool, send func(runner.Message) error) (runner.Sealed, error) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	a, patterns, open := s.agent, r.Transcripts, s.unsealedRun()
	if len(patterns) == 0 {
		patterns = s.patterns
	}
	s.mu.Unlock()
	if r.OpenRun != nil && *r.OpenRun != open {
		return runner.Sealed{}, &runner.Error{Code: runner.CodeStale, Message: fmt.Sprintf("the open run is %q, not %q", open, *r.OpenRun)}
	}
	grace := r.Grace
	if grace <= 0 {
		grace = stopGrace
	}
	if a != nil {
		a.Stop(runner.StoppedSeal, grace)
	}
	if err := quiet(); err != nil {
		return runner.Sealed{}, err
	}
	segment := func(seg *runner.Segment) error { return send(seg) }
	if err := follow.NewTranscripts(r.Known, s.versions).Poll(patterns, true, segment); err != nil {
		return runner.Sealed{}, fmt.Errorf("hand over transcripts: %w", err)
	}
	answer := runner.Sealed{Files: follow.Expand(patterns), LastFrame: -1}
	if position := cmp.Or(r.Files, r.FilesFrom); position != nil {
		describe = describe && r.Workspace == s.cfg.Workspace
		err := s.files.Seal(*position, r.Files != nil, r.KnownFiles, describe, send, &answer)
		if errors.Is(err, follow.ErrNotListed) {
			return runner.Sealed{ListFiles: true}, nil
		}
		if err != nil {
			return runner.Sealed{}, fmt.Errorf("hand over the workspace: %w", err)
		}
	}
	if err := syncFiles(answer.Files); err != nil {
		return runner.Sealed{}, err
	}
	s.mu.Lock()
	j := s.open
	s.mu.Unlock()
	if err := s.syncLedger(); err != nil {
		return runner.Sealed{}, err
	}
	if j != nil {
		if err := j.Mark(journal.Sealed); err != nil && !errors.Is(err, journal.ErrFinal) {
			return runner.Sealed{}, err
		}
		if err := errors.Join(j.Sync(), durable.Sync(s.runs())); err != nil {
			return runner.Sealed{}, err
		}
		answer.Run, answer.LastFrame = j.Run(), j.Status().Frames-1
	}
	if err := os.Remove(s.openFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runner.Sealed{}, fmt.Errorf("forget open run: %w", err)
	}
	if err := durable.Sync(s.cfg.Dir); err != nil {
		return runner.Sealed{}, err
	}
	s.mu.Lock()
	s.sealed, s.seals = true, s.seals+1
	s.mu.Unlock()
	return answer, nil
}

// syncFiles syncs files and their directory entries to disk.
func syncFiles(paths []string) error {
	dirs := map[string]bool{}
	var errs []error
	for _, p := range paths {
		errs = append(errs, durable.Sync(p))
		dirs[filepath.Dir(p)] = true
	}
	for d := range dirs {
		errs = append(errs, durable.Sync(d))
	}
	return errors.Join(errs...)
}
