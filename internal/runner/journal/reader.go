package journal

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Reader reads the frames of a journal in order, while it is being written.
type Reader struct {
	j    *Journal
	next int64 // number of the next frame
	off  int64 // offset of the next read
	r    *bufio.Reader
	// found is set once the first requested frame has been read.
	found bool
}

const (
	// readNear is the number of bytes that a reader reads from the log at once while it keeps up with
	// the writer. The reader of most runs never needs more.
	readNear = 4 << 10
	// readAhead is that number once the rest of the log is longer than the records in memory.
	readAhead = 64 << 10
)

// Read returns a reader that starts at frame from, which may not exist yet.
func (j *Journal) Read(from int64) (*Reader, error) {
	if from < 0 {
		return nil, fmt.Errorf("read journal of %s: there is no frame %d", j.run, from)
	}
	return &Reader{j: j, next: from}, nil
}

// Next returns the next frame, and waits for it if necessary. more reports whether another one is
// already available. After the last frame of a final journal it returns io.EOF, and when ctx ends
// its cause.
func (r *Reader) Next(ctx context.Context) (f runner.Frame, more bool, err error) {
	for {
		r.j.mu.Lock()
		frames, final, end := r.j.frames, r.j.last.Final(), r.j.end
		if r.next < frames {
			r.j.mu.Unlock()
			f, err := r.read(end)
			return f, r.next < frames, err
		}
		if final {
			r.j.mu.Unlock()
			return runner.Frame{}, false, io.EOF
		}
		if r.j.onChange == nil {
			r.j.onChange = make(chan struct{})
		}
		changed := r.j.onChange
		r.j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return runner.Frame{}, false, context.Cause(ctx)
		}
	}
}

// read returns frame next, which is known to be complete. end is the end of the log.
func (r *Reader) read(end int64) (runner.Frame, error) {
	if r.r == nil {
		r.j.mu.Lock()
		r.off = r.j.index.before(r.next)
		r.j.mu.Unlock()
		r.r = bufio.NewReaderSize(&tail{r}, readNear)
	}
	if end-r.off > 2*maxNewest && r.r.Size() < readAhead {
		r.off -= int64(r.r.Buffered())
		r.r = bufio.NewReaderSize(&tail{r}, readAhead)
	}
	for {
		rec, err := r.record()
		if err != nil {
			return runner.Frame{}, fmt.Errorf("read journal of %s at frame %d: %w", r.j.run, r.next, err)
		}
		if rec.mark != 0 {
			continue
		}
		if rec.frame.No < r.next && !r.found {
			continue // between the indexed frame and the requested one
		}
		r.found = true
		if rec.frame.No != r.next {
			return runner.Frame{}, fmt.Errorf("read journal of %s: frame %d where %d belongs", r.j.run, rec.frame.No, r.next)
		}
		r.next++
		return rec.frame, nil
	}
}

func (r *Reader) record() (record, error) {
	var header [recordHeader]byte
	if _, err := io.ReadFull(r.r, header[:]); err != nil {
		return record{}, err
	}
	n, sum, err := bodySize(header[:])
	if err != nil {
		return record{}, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r.r, body); err != nil {
		return record{}, err
	}
	return parseBody(body, sum)
}

// tail reads the log up to its last complete record.
type tail struct{ r *Reader }

func (t *tail) Read(p []byte) (int, error) {
	j := t.r.j
	j.mu.Lock()
	left := j.end - t.r.off
	if left > 0 && left <= int64(len(j.newest)) {
		n := copy(p, j.newest[int64(len(j.newest))-left:])
		j.mu.Unlock()
		t.r.off += int64(n)
		return n, nil
	}
	j.mu.Unlock()
	if left <= 0 {
		return 0, io.EOF
	}
	n, err := t.r.j.log.ReadAt(p[:min(int64(len(p)), left)], t.r.off)
	t.r.off += int64(n)
	return n, err
}
