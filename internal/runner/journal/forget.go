package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stubSize bounds the log of a run whose frames were discarded: magic and marks.
const stubSize = int64(len(magic) + 4*(recordHeader+bodyHeader))

// Runs are the runs of one directory, of which the newest keep their frames. The zero value is ready. It is
// not safe for concurrent use.
type Runs struct {
	whole  []string // runs with frames, oldest first
	listed bool     // whole includes the runs of earlier processes
}

// Add adds a run whose journal was created.
func (r *Runs) Add(run string) { r.whole = append(r.whole, run) }

// Forget discards the frames of all runs except the newest keep. For each of the others it leaves a
// stub that records whether the prompt was delivered, because a run that is started again must
// never look like a new one. None of the shortened journals may be open. Only the first call reads the
// directory, because a session may have thousands of stubs, and each turn calls Forget. A run that
// could not be shortened is tried again by the next call.
func (r *Runs) Forget(dir string, keep int) error {
	if !r.listed {
		earlier, err := whole(dir)
		if err != nil {
			return fmt.Errorf("forget old runs: %w", err)
		}
		earlier = slices.DeleteFunc(earlier, func(run string) bool { return slices.Contains(r.whole, run) })
		r.whole, r.listed = append(earlier, r.whole...), true
	}
	var errs []error
	old := len(r.whole) - keep
	kept := make([]string, 0, len(r.whole))
	for i, run := range r.whole {
		if i < old {
			err := shorten(dir, run)
			if err == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("forget run %s: %w", run, err))
		}
		kept = append(kept, run)
	}
	r.whole = kept
	return errors.Join(errs...)
}

// whole returns the runs of a directory whose logs are no stubs, oldest first.
func whole(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	type log struct {
		run string
		at  time.Time
	}
	var logs []log
	for _, e := range entries {
		run, isLog := strings.CutSuffix(e.Name(), ".log")
		info, err := e.Info()
		if isLog && err == nil && info.Size() > stubSize {
			logs = append(logs, log{run, info.ModTime()})
		}
	}
	slices.SortFunc(logs, func(a, b log) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.run, b.run))
	})
	runs := make([]string, len(logs))
	for i, l := range logs {
		runs[i] = l.run
	}
	return runs, nil
}

// shorten replaces the log of a run by its stub, unless it is short already or has been deleted.
func shorten(dir, run string) error {
	base := filepath.Join(dir, run)
	info, err := os.Lstat(base + ".log")
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() <= stubSize {
		return nil
	}
	j, err := Open(dir, run)
	if err != nil {
		return err
	}
	status := j.Status()
	if err := j.Close(); err != nil {
		return err
	}
	marks := []Mark{Delivering, Cut}
	if status.Delivered && status.Mark != Cut {
		marks = []Mark{Delivering, Delivered, Closed}
	}
	stub := []byte(magic)
	for _, m := range marks {
		stub = appendMark(stub, m, time.Now())
	}
	if err := ReplaceFile(base+".log", stub); err != nil {
		return err
	}
	// Runners of earlier versions stored an index.
	if err := os.Remove(base + ".idx"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReplaceFile replaces a file atomically, but the change may be lost in a crash of the machine.
func ReplaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
