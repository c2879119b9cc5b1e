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

// Forget discards the frames of all runs except the newest keep. For each of the others it leaves a
// stub that records whether the prompt was delivered, because a run that is started again must
// never look like a new one. None of the shortened journals may be open.
func Forget(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("forget old runs: %w", err)
	}
	type run struct {
		name string
		at   time.Time
	}
	var runs []run
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), ".log")
		info, err := e.Info()
		if isLog && err == nil && info.Size() > stubSize {
			runs = append(runs, run{name, info.ModTime()})
		}
	}
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.name, a.name))
	})
	var errs []error
	for _, r := range runs[min(keep, len(runs)):] {
		if err := shorten(dir, r.name); err != nil {
			errs = append(errs, fmt.Errorf("forget run %s: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}

func shorten(dir, run string) error {
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
	base := filepath.Join(dir, run)
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
