package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

const (
	// inMemory bounds the output in memory; beyond it, all output moves to a file.
	inMemory = 256 << 10
	// chunk bounds the data that a reader gets at a time.
	chunk = 256 << 10
)

// Output is an append-only stream that readers follow from any offset.
type Output struct {
	dir string // directory of the file

	mu     sync.Mutex
	memory []byte
	file   *os.File // unnamed; replaces memory
	size   int64
	ended  bool
	err    error         // why written data is missing
	grown  chan struct{} // closed and replaced with every change
}

// newOutput returns an empty stream that may move its content to a file in dir.
func newOutput(dir string) *Output { return &Output{dir: dir, grown: make(chan struct{})} }

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.append(p); err != nil {
		o.err = fmt.Errorf("keep output: %w", err)
		return 0, o.err
	}
	o.size += int64(len(p))
	o.wake()
	return len(p), nil
}

func (o *Output) append(p []byte) error {
	if o.err != nil {
		return o.err
	}
	if o.file == nil && len(o.memory)+len(p) <= inMemory {
		o.memory = append(o.memory, p...)
		return nil
	}
	if o.file == nil {
		f, err := os.CreateTemp(o.dir, "output-*")
		if err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(err, f.Close())
		}
		if _, err := f.Write(o.memory); err != nil {
			return errors.Join(err, f.Close())
		}
		o.file, o.memory = f, nil
	}
	_, err := o.file.Write(p)
	return err
}

func (o *Output) wake() {
	close(o.grown)
	o.grown = make(chan struct{})
}

// End ends the stream.
func (o *Output) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		o.wake()
	}
}

// Release frees the content of the stream. Readers then find it empty.
func (o *Output) Release() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.memory, o.size = nil, 0
	if !o.ended {
		o.ended = true
	}
	o.wake()
	if o.file == nil {
		return nil
	}
	f := o.file
	o.file = nil
	return f.Close()
}

// read returns the data at offset, whether the stream ends after it, and, without data, a channel
// to wait for.
func (o *Output) read(offset int64, buf []byte) (n int, ended bool, grown <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.size - offset
	if left <= 0 {
		return 0, o.ended, o.grown, o.err
	}
	buf = buf[:min(int64(len(buf)), left)]
	if o.file == nil {
		return copy(buf, o.memory[offset:]), false, nil, nil
	}
	n, err = o.file.ReadAt(buf, offset)
	return n, false, nil, err
}

// Follow calls send with successive pieces of the stream from offset, until the stream has ended or
// ctx is done. A piece is valid during the call.
func (o *Output) Follow(ctx context.Context, offset uint64, send func(offset uint64, p []byte) error) error {
	buf := make([]byte, chunk)
	at := int64(offset)
	for {
		n, ended, grown, err := o.read(at, buf)
		if err != nil {
			return err
		}
		if n > 0 {
			if err := send(uint64(at), buf[:n]); err != nil {
				return err
			}
			at += int64(n)
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
