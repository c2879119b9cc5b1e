package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// ledger is the file of a directory with the runs whose journals were discarded. Each has a line: its
// name, and whether its prompt was delivered. A line without its end was being written when the
// runner died, and counts for nothing.
//
// One file for all runs makes snapshots cheaper than one for each: after 1,500 runs, a snapshot of
// the local Modal took up to a second to copy their files.
type ledger struct {
	runs  map[string]bool // whether their prompts were delivered; nil until the file is read
	file  *os.File        // nil until a run is added
	size  int64           // of the complete lines
	dirty bool            // it may not be synced
}

const (
	ledgerName = "ended.txt"
	// maxLedger bounds the bytes that are read, for more than a million runs. A larger file is not the
	// runner's.
	maxLedger = 64 << 20

	deliveredWord, cutWord = "delivered", "cut"
)

// read reads the file, unless it was read before. What is no regular file is deleted.
func (l *ledger) read(dir string) error {
	if l.runs != nil {
		return nil
	}
	path := filepath.Join(dir, ledgerName)
	data, err := readLedger(path)
	if errors.Is(err, regular.ErrNotRegular) || errors.Is(err, regular.ErrTooLarge) || errors.Is(err, unix.ELOOP) {
		data, err = nil, os.RemoveAll(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the ended runs: %w", err)
	}
	text := string(data)
	text = text[:strings.LastIndexByte(text, '\n')+1]
	l.runs, l.size = map[string]bool{}, int64(len(text))
	for line := range strings.Lines(text) {
		run, word, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ValidRun(run) && (word == deliveredWord || word == cutWord) {
			l.runs[run] = word == deliveredWord
		}
	}
	return nil
}

func readLedger(path string) ([]byte, error) {
	f, err := regular.OpenAt(unix.AT_FDCWD, path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, maxLedger+1))
	if err == nil && len(data) > maxLedger {
		err = regular.ErrTooLarge
	}
	return data, err
}

// find reports whether a run is in the ledger, and whether its prompt was delivered.
func (l *ledger) find(dir, run string) (delivered, ended bool, err error) {
	if err := l.read(dir); err != nil {
		return false, false, err
	}
	delivered, ended = l.runs[run]
	return delivered, ended, nil
}

// add adds a run. If it fails, the next call overwrites what it has written.
func (l *ledger) add(dir, run string, delivered bool) error {
	before, ended, err := l.find(dir, run)
	if err != nil || ended && before == delivered {
		return err
	}
	if l.file == nil {
		if l.file, err = openFile(filepath.Join(dir, ledgerName), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK); err != nil {
			return err
		}
	}
	word := cutWord
	if delivered {
		word = deliveredWord
	}
	line := run + " " + word + "\n"
	if _, err := l.file.WriteAt([]byte(line), l.size); err != nil {
		return fmt.Errorf("note an ended run: %w", err)
	}
	l.size += int64(len(line))
	l.runs[run], l.dirty = delivered, true
	return nil
}

func (l *ledger) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
