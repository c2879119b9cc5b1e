package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// ErrFinal is returned by an append after a final mark.
var ErrFinal = errors.New("journal is final")

var validRun = lazyregexp.New(`^[A-Za-z0-9_-]{1,128}$`)

// ValidRun reports whether run is a valid name of a journal.
func ValidRun(run string) bool { return validRun.MatchString(run) }

// Journal is the journal of one run. It is safe for concurrent use.
type Journal struct {
	dir, run string
	log      *os.File

	syncing sync.Mutex // acquired before mu

	mu       sync.Mutex
	end      int64 // offset after the last complete record
	frames   int64
	index    index
	newest   []byte // tail of the log, starting at end-len(newest)
	last     Mark   // 0 before the first
	reached  bool   // the mark Delivered was written
	exited   bool   // the newest frame is an exit frame
	dirty    bool
	buf      []byte
	onChange chan struct{} // closed at the next change; nil if no reader waits
}

// Create creates the journal of a run, with its first mark. It fails with fs.ErrExist if one
// exists. The caller syncs the directory.
func Create(dir, run string, first Mark) (*Journal, error) {
	if !ValidRun(run) {
		return nil, fmt.Errorf("create journal: %q does not name a run", run)
	}
	j := &Journal{dir: dir, run: run}
	if err := j.open(os.O_CREATE | os.O_EXCL); err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j.buf, j.last, j.reached = appendMark([]byte(magic), first, time.Now()), first, first == Delivered
	if err := j.write(); err != nil { // the disk is full: the run has not begun, and a later attempt may begin it
		return nil, errors.Join(fmt.Errorf("create journal: %w", err), j.Close(), os.Remove(filepath.Join(dir, run+".log")))
	}
	return j, nil
}

// Open opens the journal of a run and truncates a damaged tail. It fails with fs.ErrNotExist if the
// run has no journal.
func Open(dir, run string) (*Journal, error) {
	if !ValidRun(run) {
		return nil, fmt.Errorf("open journal: %q does not name a run: %w", run, fs.ErrNotExist)
	}
	j := &Journal{dir: dir, run: run}
	if err := j.open(0); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := j.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal of %s: %w", run, err), j.Close())
	}
	return j, nil
}

// Exists reports whether a run has a journal.
func Exists(dir, run string) bool {
	if !ValidRun(run) {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, run+".log"))
	return err == nil
}

func (j *Journal) open(flags int) error {
	log, err := openFile(filepath.Join(j.dir, j.run+".log"), os.O_RDWR|flags)
	if err != nil {
		return err
	}
	j.log = log
	return nil
}

func (j *Journal) recover() error {
	end, err := scan(bufio.NewReaderSize(j.log, 256<<10), j.recovered)
	if err != nil {
		return err
	}
	if end == 0 { // the runner died after it had created the file and before it wrote to it
		if _, err := j.log.WriteAt([]byte(magic), 0); err != nil {
			return err
		}
		end = int64(len(magic))
	}
	j.end = end
	if info, err := j.log.Stat(); err != nil || info.Size() == end {
		return err
	}
	return errors.Join(j.log.Truncate(end), j.log.Sync())
}

// recovered takes a record at an offset of the log.
func (j *Journal) recovered(offset int64, r record) error {
	if r.mark != 0 {
		j.last = r.mark
		j.reached = j.reached || r.mark == Delivered
		return nil
	}
	j.index.add(j.frames, offset)
	j.frames++
	j.exited = r.frame.Stream == runner.Exit
	return nil
}

// scan reads records up to the first that is damaged, out of order or after a final mark, and
// returns its offset. It returns only errors of visit.
func scan(r io.Reader, visit func(offset int64, r record) error) (end int64, err error) {
	head := make([]byte, len(magic))
	if n, _ := io.ReadFull(r, head); n < len(magic) || string(head) != magic {
		return 0, nil
	}
	end = int64(len(magic))
	var body []byte
	var last Mark
	var next int64 // frame
	for {
		rec, size, ok := scanRecord(r, &body)
		if !ok || last.Final() || rec.mark == 0 && rec.frame.No != next {
			return end, nil
		}
		if rec.mark != 0 {
			last = rec.mark
		} else {
			next++
		}
		if err := visit(end, rec); err != nil {
			return end, err
		}
		end += size
	}
}

// scanRecord reads the next record into body. ok is false if there is no complete record.
func scanRecord(r io.Reader, body *[]byte) (rec record, size int64, ok bool) {
	var header [recordHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return record{}, 0, false
	}
	n, sum, err := bodySize(header[:])
	if err != nil {
		return record{}, 0, false
	}
	if cap(*body) < n {
		*body = make([]byte, n)
	}
	b := (*body)[:n]
	if _, err := io.ReadFull(r, b); err != nil {
		return record{}, 0, false
	}
	rec, err = parseBody(b, sum)
	return rec, int64(recordHeader + n), err == nil
}

// Run returns the run to which the journal belongs.
func (j *Journal) Run() string { return j.run }

// Append writes the next frame and returns its number. If it fails, nothing was written.
func (j *Journal) Append(stream runner.Stream, at time.Time, data []byte, truncated bool) (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last.Final() {
		return 0, ErrFinal
	}
	no := j.frames
	j.buf = appendFrame(j.buf[:0], runner.Frame{No: no, Stream: stream, At: at, Data: data, Truncated: truncated})
	if len(j.buf) > recordHeader+maxBody {
		return 0, fmt.Errorf("frame of %d bytes exceeds the bound of %d", len(data), runner.MaxLine)
	}
	offset := j.end
	if err := j.write(); err != nil {
		return 0, err
	}
	j.index.add(no, offset)
	j.frames++
	j.exited = stream == runner.Exit
	j.changed()
	return no, nil
}

// Mark writes a mark, and syncs the journal after Cut and Sealed, because nothing else would.
// Repeating a mark has no effect.
func (j *Journal) Mark(m Mark) error {
	if err := j.mark(m); err != nil || m != Cut && m != Sealed {
		return err
	}
	return j.Sync()
}

func (j *Journal) mark(m Mark) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.last == m:
		return nil
	case j.last.Final():
		return ErrFinal
	}
	j.buf = appendMark(j.buf[:0], m, time.Now())
	if err := j.write(); err != nil {
		return err
	}
	j.last = m
	j.reached = j.reached || m == Delivered
	j.changed()
	return nil
}

// write appends buf after the last record, and undoes a partial write.
func (j *Journal) write() error {
	j.dirty = true
	if err := j.writeAt(j.buf, j.end); err != nil {
		return errors.Join(fmt.Errorf("append to journal: %w", err), j.log.Truncate(j.end))
	}
	j.end += int64(len(j.buf))
	j.remember(j.buf)
	if cap(j.buf) > 1<<20 {
		j.buf = nil // do not retain a buffer for the longest line so far
	}
	return nil
}

// maxNewest bounds how much of the end of the log is kept in memory.
const maxNewest = 16 << 10

// remember keeps the end of the log in memory, so that a reader that waits for a line need not read
// it from the file.
func (j *Journal) remember(record []byte) {
	if len(j.newest)+len(record) > 2*maxNewest {
		keep := j.newest[max(0, len(j.newest)-max(0, maxNewest-len(record))):]
		j.newest = append(j.newest[:0], keep...)
	}
	if len(record) > maxNewest {
		j.newest = j.newest[:0] // read from the file instead
		return
	}
	j.newest = append(j.newest, record...)
}

func (j *Journal) changed() {
	if j.onChange != nil {
		close(j.onChange)
		j.onChange = nil
	}
}

// Sync syncs new records to disk. Appends and reads continue meanwhile.
func (j *Journal) Sync() error {
	j.syncing.Lock() // a caller that finds nothing to sync must know that everything is on disk
	defer j.syncing.Unlock()
	j.mu.Lock()
	dirty := j.dirty
	j.dirty = false
	j.mu.Unlock()
	if !dirty {
		return nil
	}
	if err := j.log.Sync(); err != nil {
		j.mu.Lock()
		j.dirty = true
		j.mu.Unlock()
		return fmt.Errorf("sync journal of %s: %w", j.run, err)
	}
	return nil
}

// Status is the state of a journal.
type Status struct {
	Mark   Mark  // the newest; 0 if the runner died before the first
	Frames int64 // number of frames
	Exited bool  // the newest frame is an exit frame
	// Delivered is set if the whole prompt was written to the agent.
	Delivered bool
}

// Status returns the state of the journal.
func (j *Journal) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Status{Mark: j.last, Frames: j.frames, Exited: j.exited, Delivered: j.reached}
}

// Close closes the files. Reads then fail.
func (j *Journal) Close() error { return j.log.Close() }
