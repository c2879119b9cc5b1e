package box

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startRecord is the state of a copied root when its sandbox started, from which later changes are
// computed. It is stored next to the root, for a later server.
type startRecord struct {
	files map[string]fingerprint // by path relative to the root
	names map[string][]string    // names of each directory's entries
}

// startEntry is the stored form of an entry.
type startEntry struct {
	Path                   string
	Dev, Ino               uint64
	Size                   int64
	Modified, ModifiedNano int64
	Changed, ChangedNano   int64
}

// recordStart records root in a file, and returns when any later change is certain to be detected:
// the clock of file times must have passed the latest recorded time.
func recordStart(root, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	entries, newest, err := describeTree(root)
	if err == nil {
		err = gob.NewEncoder(f).Encode(entries)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("record files: %w", err)
	}
	return awaitTick(newest)
}

func describeTree(root string) (entries []startEntry, newest unix.Timespec, err error) {
	var visit func(rel string) error
	visit = func(rel string) error {
		path := filepath.Join(root, rel)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err := whileOpen(path, &st, func() error {
				names, err := os.ReadDir(path)
				if err != nil {
					return err
				}
				for _, n := range names {
					if err := visit(filepath.Join(rel, n.Name())); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := unix.Lstat(path, &st); err != nil { // its mode may have been changed temporarily
				return &fs.PathError{Op: "lstat", Path: path, Err: err}
			}
		}
		print := fingerprintOf(&st)
		entries = append(entries, startEntry{
			Path: rel, Dev: print.dev, Ino: print.ino, Size: print.size, Modified: print.modified.Sec, ModifiedNano: print.modified.Nsec,
			Changed: print.tick.Sec, ChangedNano: print.tick.Nsec,
		})
		if st.Ctim.Nano() > newest.Nano() {
			newest = st.Ctim
		}
		return nil
	}
	return entries, newest, visit(".")
}

// awaitTick returns when the clock of file times has passed t.
func awaitTick(t unix.Timespec) error {
	for {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			return fmt.Errorf("read clock: %w", err)
		}
		if now.Nano() > t.Nano() {
			return nil
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // no event signals a tick of the clock
	}
}

func readStart(file string) (*startRecord, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	var entries []startEntry
	err = gob.NewDecoder(f).Decode(&entries)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read record of files: %w", err)
	}
	s := &startRecord{files: make(map[string]fingerprint, len(entries)), names: map[string][]string{}}
	for _, e := range entries {
		s.files[e.Path] = fingerprint{
			inode: inode{e.Dev, e.Ino}, size: e.Size,
			modified: unix.Timespec{Sec: e.Modified, Nsec: e.ModifiedNano}, tick: unix.Timespec{Sec: e.Changed, Nsec: e.ChangedNano},
		}
		if e.Path != "." {
			dir := filepath.Dir(e.Path)
			s.names[dir] = append(s.names[dir], filepath.Base(e.Path))
		}
	}
	return s, nil
}
