package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
	"github.com/overwinter-dev/overwinter/internal/rawio"
)

// drainGrace is how long output is read after the end of a process: a remaining child may hold the
// streams open forever.
const drainGrace = 250 * time.Millisecond

// ErrStdinClosed is returned for a write to a process whose input is closed.
var ErrStdinClosed = errors.New("stdin is closed")

// OffsetError is returned for a write that would leave a gap.
type OffsetError struct{ Offset, Written uint64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("offset %d is past the %d bytes written", e.Offset, e.Written)
}

// Execution is a process with its streams.
type Execution struct {
	Stdout, Stderr *Output // nil if the caller does not need it

	process *box.Process
	done    chan struct{}
	ended   time.Time // set before done is closed

	writing sync.Mutex // one writer at a time
	stdin   *os.File
	input   io.Writer // writes to stdin

	mu      sync.Mutex
	written uint64
	closed  bool
}

// streams contains both ends of a process's three streams.
type streams struct{ theirs, ours [3]*os.File }

func openStreams() (*streams, error) {
	var s streams
	for i := range s.ours {
		r, w, err := os.Pipe()
		if err != nil {
			s.close()
			return nil, fmt.Errorf("open streams: %w", err)
		}
		if i == 0 {
			s.theirs[i], s.ours[i] = r, w
		} else {
			s.theirs[i], s.ours[i] = w, r
		}
	}
	return &s, nil
}

func (s *streams) close() {
	s.closeTheirs()
	for _, f := range s.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		if f != nil {
			_ = f.Close()
		}
	}
}

// begin starts the process. It calls finished when the process and its output have ended.
func begin(b *box.Box, spec wire.ExecSpec, stdout, stderr *Output, finished func()) (*Execution, error) {
	s, err := openStreams()
	if err != nil {
		return nil, err
	}
	process, err := b.Exec(spec, s.theirs[0], s.theirs[1], s.theirs[2])
	if err != nil {
		s.close()
		return nil, err
	}
	s.closeTheirs()
	e := &Execution{Stdout: stdout, Stderr: stderr, process: process, stdin: s.ours[0], input: rawio.NewWriter(s.ours[0]), done: make(chan struct{})}
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(stdout, s.ours[1]) })
	pumps.Go(func() { pump(stderr, s.ours[2]) })
	go func() {
		defer finished()
		<-process.Done()
		giveUp := time.AfterFunc(drainGrace, func() {
			now := time.Now()
			_ = s.ours[1].SetReadDeadline(now) // fails only if it is already closed
			_ = s.ours[2].SetReadDeadline(now)
		})
		pumps.Wait()
		giveUp.Stop()
		e.finish()
	}()
	return e, nil
}

// pump copies the output of a process to its stream. Without a stream it discards the output, so
// that the process never blocks.
func pump(to *Output, from *os.File) {
	defer from.Close()
	w := io.Discard
	if to != nil {
		w = to
		defer to.End()
	}
	in := rawio.NewReader(from)
	if _, err := io.Copy(w, in); err != nil {
		_, _ = io.Copy(io.Discard, in) // the stream stores the error for its readers
	}
}

func (e *Execution) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	_ = e.stdin.Close() // no process reads it any more
	e.ended = time.Now()
	close(e.done)
}

// Done is closed when the process has ended and its output is complete.
func (e *Execution) Done() <-chan struct{} { return e.done }

// Exit returns the exit code, or the signal that ended the process, once Done is
// closed.
func (e *Execution) Exit() (int, syscall.Signal) { return e.process.Exit() }

// Kill ends the process and its group.
func (e *Execution) Kill() error { return e.process.Signal(syscall.SIGKILL) }

// Written returns how many bytes have been written to stdin, and whether it is closed.
func (e *Execution) Written() (uint64, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written, e.closed
}

// Write writes data to stdin. offset is the offset of data in the whole input: bytes that were
// written before are skipped, so that writes can be repeated. It blocks while the process does not
// read, until ctx is done.
func (e *Execution) Write(ctx context.Context, offset uint64, data []byte, last bool) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	written, closed := e.Written()
	if closed {
		if last && offset+uint64(len(data)) <= written {
			return nil // the end was sent before
		}
		return ErrStdinClosed
	}
	if offset > written {
		return &OffsetError{Offset: offset, Written: written}
	}
	if skip := written - offset; skip < uint64(len(data)) {
		if err := e.pass(ctx, data[skip:]); err != nil {
			return err
		}
	}
	if !last {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		return e.stdin.Close()
	}
	return nil
}

func (e *Execution) pass(ctx context.Context, data []byte) error {
	if err := e.stdin.SetWriteDeadline(time.Time{}); err != nil {
		return ErrStdinClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = e.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := e.input.Write(data)
	e.mu.Lock()
	e.written += uint64(n)
	e.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return ErrStdinClosed
	}
}
