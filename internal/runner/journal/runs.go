package journal

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// Runs are the runs of one directory. The newest keep their journals, and the others are in the
// ledger. The zero value is ready. It is not safe for concurrent use.
type Runs struct {
	whole  []wholeRun // runs with a journal, oldest first
	short  []string   // runs of earlier processes whose log is as short as those that earlier releases left of old runs
	listed bool       // both include the runs of earlier processes
	ledger ledger
}

// wholeRun is a run with a journal.
type wholeRun struct {
	name    string
	final   *Status // of its final journal; nil if its log must be read
	indexed bool    // a runner of an earlier version stored an index
}

// Create is [Create] for a run that has never had a journal.
func (r *Runs) Create(dir, run string, first Mark) (*Journal, error) {
	_, ended, err := r.ledger.find(dir, run)
	if err != nil {
		return nil, err
	}
	if ended {
		return nil, fmt.Errorf("create journal: run %s has ended: %w", run, fs.ErrExist)
	}
	j, err := Create(dir, run, first)
	if err == nil {
		r.whole = append(r.whole, wholeRun{name: run})
	}
	return j, err
}

// End notes the state of a run's final journal, so that Forget need not read its log.
func (r *Runs) End(j *Journal) {
	status := j.Status()
	i := slices.IndexFunc(r.whole, func(w wholeRun) bool { return w.name == j.run })
	if i >= 0 && status.Mark.Final() {
		r.whole[i].final = &status
	}
}

// Exists reports whether a run has a journal, or had one. If that is unknown, it returns an error.
func (r *Runs) Exists(dir, run string) (bool, error) {
	if Exists(dir, run) {
		return true, nil
	}
	_, ended, err := r.ledger.find(dir, run)
	return ended, err
}

// Open opens the journal of a run. That of a run whose journal was discarded has no frames, and its
// marks only show whether the prompt was delivered. It fails with fs.ErrNotExist if the run has never
// had a journal.
func (r *Runs) Open(dir, run string) (*Journal, error) {
	j, err := Open(dir, run)
	if !errors.Is(err, fs.ErrNotExist) {
		return j, err
	}
	delivered, ended, ledgerErr := r.ledger.find(dir, run)
	switch {
	case ledgerErr != nil:
		return nil, ledgerErr
	case !ended:
		return nil, err
	}
	if !delivered {
		j, err = Create(dir, run, Cut)
	} else if j, err = Create(dir, run, Delivered); err == nil {
		if err = j.Mark(Closed); err != nil {
			err = errors.Join(err, j.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	r.whole = slices.Insert(r.whole, 0, wholeRun{name: run}) // the next to be forgotten again
	return j, nil
}

// Forget discards the journals of all runs except the newest keep. The ledger keeps whether their
// prompts were delivered, because a run that is started again must never look like a new one. None of
// the discarded journals may be written any more. Only the first call reads the directory. A run whose
// journal could not be discarded is tried again by the next call.
func (r *Runs) Forget(dir string, keep int) error {
	if !r.listed {
		if err := r.list(dir); err != nil {
			return fmt.Errorf("forget old runs: %w", err)
		}
		r.listed = true
	}
	var errs []error
	if err := r.moveShort(dir); err != nil {
		errs = append(errs, err)
	}
	old := len(r.whole) - keep
	kept := make([]wholeRun, 0, len(r.whole))
	for i, run := range r.whole {
		if i < old {
			err := r.discard(dir, run)
			if err == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("forget run %s: %w", run.name, err))
		}
		kept = append(kept, run)
	}
	r.whole = kept
	return errors.Join(errs...)
}

const (
	// shortSize bounds the logs that earlier releases left of old runs: they have only marks.
	shortSize = int64(len(magic) + 4*(recordHeader+bodyHeader))
	// shortAtOnce bounds the short logs that one call of Forget moves to the ledger. There may be
	// thousands, and the agent's output waits for it.
	shortAtOnce = 50
)

// list finds the runs of earlier processes.
func (r *Runs) list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type log struct {
		run string
		at  time.Time
	}
	var logs []log
	indexed := map[string]bool{}
	for _, e := range entries {
		if run, isIndex := strings.CutSuffix(e.Name(), ".idx"); isIndex {
			indexed[run] = true
		}
		run, isLog := strings.CutSuffix(e.Name(), ".log")
		info, err := e.Info()
		switch {
		case !isLog || err != nil || slices.ContainsFunc(r.whole, func(w wholeRun) bool { return w.name == run }):
		case info.Mode().IsRegular() && info.Size() <= shortSize:
			r.short = append(r.short, run)
		default:
			logs = append(logs, log{run, info.ModTime()})
		}
	}
	slices.SortFunc(logs, func(a, b log) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.run, b.run))
	})
	earlier := make([]wholeRun, len(logs))
	for i, l := range logs {
		earlier[i] = wholeRun{name: l.run, indexed: indexed[l.run]}
	}
	r.whole = slices.Concat(earlier, r.whole)
	return nil
}

// moveShort moves the runs of some short logs to the ledger. One that has frames, or no end, becomes the
// oldest run with a journal.
func (r *Runs) moveShort(dir string) error {
	n := min(len(r.short), shortAtOnce)
	var errs []error
	for _, name := range r.short[:n] {
		run := wholeRun{name: name}
		status, err := statusOf(dir, name)
		if err == nil && status.Frames == 0 && status.Mark.Final() {
			run.final = &status
			err = r.discard(dir, run)
		} else if err == nil {
			r.whole = slices.Insert(r.whole, 0, run)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("forget run %s: %w", name, err))
			r.whole = slices.Insert(r.whole, 0, run)
		}
	}
	r.short = r.short[n:]
	return errors.Join(errs...)
}

// discard moves a run to the ledger.
func (r *Runs) discard(dir string, run wholeRun) error {
	if run.final == nil {
		status, err := statusOf(dir, run.name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		run.final = &status
	}
	if err := r.ledger.add(dir, run.name, run.final.Delivered && run.final.Mark != Cut); err != nil {
		return err
	}
	names := []string{run.name + ".log"}
	if run.indexed {
		names = append(names, run.name+".idx")
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// statusOf reads the state of a journal that nothing writes to. It does not open the log for writing:
// after a restore the log is a part of the image, which the file system would copy first.
func statusOf(dir, run string) (Status, error) {
	if !ValidRun(run) {
		return Status{}, fmt.Errorf("%q does not name a run: %w", run, fs.ErrNotExist)
	}
	log, err := regular.OpenAt(unix.AT_FDCWD, filepath.Join(dir, run+".log"), unix.O_NOFOLLOW)
	if err != nil {
		return Status{}, err
	}
	j := &Journal{dir: dir, run: run, log: log}
	_, err = scan(bufio.NewReaderSize(log, 4<<10), j.recovered)
	return j.Status(), errors.Join(err, log.Close())
}

// Unsynced returns the ledger if runs were added to it since the last call, else nil. A crash of the
// machine may lose them until the caller has synced it.
func (r *Runs) Unsynced() *os.File {
	if !r.ledger.dirty {
		return nil
	}
	r.ledger.dirty = false
	return r.ledger.file
}

// NotSynced makes the next call of Unsynced return the ledger, because its sync has failed.
func (r *Runs) NotSynced() { r.ledger.dirty = true }

// Close closes the ledger.
func (r *Runs) Close() error { return r.ledger.close() }
