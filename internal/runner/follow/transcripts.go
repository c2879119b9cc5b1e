package follow

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// PollInterval is how often the files are polled during a turn: often enough that little is
	// lost with a sandbox, and cheap even for a hundred sandboxes. The flush at the end of a turn
	// does not wait for a poll.
	PollInterval = time.Second
	// edge is the number of bytes, at each end of the data read so far, that are compared at each
	// change: enough to detect a rewritten file, and cheap enough for every poll.
	edge = 4 << 10
)

// Versions keeps the state that followers share from link to link: the newest version that any of
// them has given a path, so that a rewrite whose bytes never reached the worker is not forgotten
// with its link, the hash of the bytes that were sent, so that the next link does not read the
// whole file again, and the state of the directories.
type Versions struct {
	expander expander

	mu     sync.Mutex
	newest map[string]int64
	handed map[string]handed
}

// handed describes the part of a file that a follower has sent: the first size bytes of a version.
type handed struct {
	version, size int64
	sum           *maphash.Hash // of those bytes; never written to
}

// NewVersions returns empty Versions.
func NewVersions() *Versions {
	return &Versions{newest: map[string]int64{}, handed: map[string]handed{}}
}

// keep records the part of a file that was sent.
func (v *Versions) keep(t *followed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.handed[t.path] = handed{version: t.version, size: t.size, sum: cloned(t.sum)}
}

// sumOf returns a hash of the bytes that were sent of a file, to be continued, or nil if the worker
// has stored another position.
func (v *Versions) sumOf(stored transcript.Position) *maphash.Hash {
	v.mu.Lock()
	h, ok := v.handed[stored.Path]
	v.mu.Unlock()
	if !ok || h.version != stored.Version || h.size != stored.Size {
		return nil
	}
	return cloned(h.sum)
}

// seed is the seed of all hashes of this process. A flush hashes each transcript from its beginning,
// and compares the hash only with one of the same process. So it must be fast rather than portable.
// It has 64 bits, and an agent cannot predict it.
var seed = maphash.MakeSeed()

func newSum() *maphash.Hash {
	sum := new(maphash.Hash)
	sum.SetSeed(seed)
	return sum
}

func cloned(sum *maphash.Hash) *maphash.Hash {
	c, err := sum.Clone()
	if err != nil {
		panic(err) // a hash of this type can always be cloned
	}
	return c.(*maphash.Hash)
}

func (v *Versions) raise(path string, to int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest[path] = max(v.newest[path], to)
}

func (v *Versions) of(path string) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.newest[path]
}

// Transcripts follows the agent's transcript files as they grow. It gives each path a version that
// rises when bytes that were read before are no longer there. It is used by one goroutine; each
// link has its own, created from the worker's positions.
type Transcripts struct {
	versions *Versions
	files    map[string]*followed
}

// followed is one file as it was last seen.
type followed struct {
	path    string
	version int64
	size    int64         // bytes of this version that were sent
	cut     bool          // the worker stores no more of this version
	sum     *maphash.Hash // of those bytes
	head    []byte        // their first and last bytes, at most edge each
	tail    []byte

	inode   uint64 // of the file when it was last read to its end
	written time.Time
}

// NewTranscripts resumes at the stored positions. A file that is shorter was restored to an earlier
// state and counts as rewritten. If an earlier follower of this runner sent the stored bytes, the
// first strict poll compares the file with them; otherwise they cannot be compared with the disk.
func NewTranscripts(known []transcript.Position, v *Versions) *Transcripts {
	f := &Transcripts{versions: v, files: map[string]*followed{}}
	for _, k := range known {
		t := &followed{path: k.Path}
		f.files[k.Path] = t
		if newest := v.of(k.Path); newest > k.Version {
			t.restart(newest)
			continue
		}
		t.restart(k.Version)
		if err := t.skip(k.Size, v.sumOf(k)); err != nil {
			t.restart(k.Version + 1)
		} else {
			t.cut = k.Cut
		}
		v.raise(k.Path, t.version)
	}
	return f
}

// Poll passes new data in the matching files to send, in pieces of at most runner.MaxSegment.
// strict compares everything that was read before, not only its ends. An error is that of send; a
// file that cannot be read waits for the next poll.
func (f *Transcripts) Poll(patterns []string, strict bool, send func(*runner.Segment) error) error {
	for _, path := range f.versions.expander.expand(patterns, strict) {
		t := f.files[path]
		if t == nil {
			t = &followed{path: path}
			t.restart(max(1, f.versions.of(path)))
			f.files[path] = t
		}
		before := t.size
		err := t.poll(strict, func(s *runner.Segment) error {
			f.versions.raise(s.Path, s.Version)
			return send(s)
		})
		if err != nil {
			return err
		}
		if t.size != before {
			f.versions.keep(t)
		}
	}
	return nil
}

func (t *followed) restart(version int64) {
	t.version, t.size, t.sum, t.head, t.tail = version, 0, newSum(), nil, nil
	t.inode, t.written, t.cut = 0, time.Time{}, false
}

// skip treats the first n bytes as sent. It reads them, or only their ends if their hash is known.
func (t *followed) skip(n int64, sum *maphash.Hash) error {
	file, err := regular.Open(t.path)
	if err != nil {
		return err
	}
	defer file.Close() // opened only for reading
	if sum != nil {
		t.head, t.tail = make([]byte, min(n, edge)), make([]byte, min(n, edge))
		if _, err := file.ReadAt(t.head, 0); err != nil {
			return err
		}
		if _, err := file.ReadAt(t.tail, n-int64(len(t.tail))); err != nil {
			return err
		}
		t.size, t.sum = n, sum
		return nil
	}
	for n > 0 {
		b, err := readPiece(file, t.size, n)
		if err != nil {
			return err
		}
		t.take(b)
		n -= int64(len(b))
	}
	return nil
}

// readPiece reads up to most bytes at offset. It returns io.EOF if there are none.
func readPiece(file *os.File, offset, most int64) ([]byte, error) {
	b := make([]byte, min(most, runner.MaxSegment))
	n, err := file.ReadAt(b, offset)
	if n > 0 {
		return b[:n], nil
	}
	return nil, err
}

func (t *followed) take(b []byte) {
	_, _ = t.sum.Write(b) // a hash returns no errors
	t.size += int64(len(b))
	if room := edge - len(t.head); room > 0 {
		t.head = append(t.head, b[:min(room, len(b))]...)
	}
	t.tail = append(t.tail, b[max(0, len(b)-edge):]...)
	if excess := len(t.tail) - edge; excess > 0 {
		t.tail = append(t.tail[:0], t.tail[excess:]...)
	}
}

func (t *followed) poll(strict bool, send func(*runner.Segment) error) error {
	if !strict && t.unchanged() {
		return nil
	}
	file, err := regular.Open(t.path)
	if err != nil {
		return nil
	}
	defer file.Close() // opened only for reading
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	inode := inodeOf(info)
	same, err := t.same(file, info, strict || t.inode != 0 && inode != t.inode)
	if err != nil {
		return nil
	}
	if !same {
		t.restart(t.version + 1)
	}
	if t.cut {
		return nil
	}
	for {
		b, err := readPiece(file, t.size, info.Size()-t.size)
		if err != nil || len(b) == 0 {
			break
		}
		if err := send(&runner.Segment{Path: t.path, Version: t.version, Offset: t.size, Data: b}); err != nil {
			return err
		}
		t.take(b)
	}
	// A write during the read leaves a later time or another size.
	if t.size == info.Size() {
		t.inode, t.written = inode, info.ModTime()
	}
	return nil
}

// unchanged reports whether the file looks as it did when it was last read to its end. It does not
// open the file, because a poll rarely finds a change.
func (t *followed) unchanged() bool {
	if t.inode == 0 {
		return false
	}
	info, err := os.Stat(t.path)
	return err == nil && info.Mode().IsRegular() && inodeOf(info) == t.inode && info.Size() == t.size && info.ModTime().Equal(t.written)
}

const copyBytes = 32 << 10

// copyBuffers spares a buffer for each file of each flush.
var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// same reports whether the bytes that were read before are still there.
func (t *followed) same(file *os.File, info fs.FileInfo, whole bool) (bool, error) {
	if info.Size() < t.size {
		return false, nil
	}
	if whole {
		sum := newSum()
		pooled := copyBuffers.Get().(*[copyBytes]byte)
		defer copyBuffers.Put(pooled)
		n, err := io.CopyBuffer(sum, io.NewSectionReader(file, 0, t.size), pooled[:])
		if err != nil {
			return false, err
		}
		return n == t.size && sum.Sum64() == t.sum.Sum64(), nil
	}
	ends := []struct {
		offset int64
		want   []byte
	}{{0, t.head}, {t.size - int64(len(t.tail)), t.tail}}
	for _, e := range ends {
		got := make([]byte, len(e.want))
		if _, err := file.ReadAt(got, e.offset); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(got, e.want) {
			return false, nil
		}
	}
	return true, nil
}

func inodeOf(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
