package task

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
)

const (
	// inMemory bounds the newest output, which is in memory; older output is in a file. It is also
	// the size of the buffer with which io.Copy writes much output.
	inMemory = 32 << 10
	// maxUnstored bounds the memory while the file cannot be written, since for example the disk is
	// full. Short output does not depend on the disk.
	maxUnstored = 256 << 10
	// firstBuffer is the size of a buffer when it is allocated. It grows as needed.
	firstBuffer = 512
	// chunk bounds the data that a reader gets at a time.
	chunk = 256 << 10
)

// Output is an append-only stream that readers follow from any offset.
//
//	0 ───── file ───── stored ── memory ── size
//
// Readers that keep up read from memory, and the file is written in large blocks.
type Output struct {
	dir string // directory of the file

	mu     sync.Mutex
	file   *os.File // unnamed; nil until the stream exceeds inMemory
	stored int64    // bytes in the file
	memory []byte   // the bytes after them; only appended to, since readers use parts of it
	ended  bool
	err    error         // why written data is missing
	grown  chan struct{} // closed by the next change; nil if no reader waits
}

// newOutput returns an empty stream that may move its content to a file in dir.
func newOutput(dir string) *Output { return &Output{dir: dir} }

// Write appends p. It fails if the file cannot be written and the memory is full, and then always.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.wake()
	written := 0
	for part := range slices.Chunk(p, inMemory) {
		if err := o.append(part); err != nil {
			return written, err
		}
		written += len(part)
	}
	return written, nil
}

// append appends at most inMemory bytes.
func (o *Output) append(p []byte) error {
	if o.err != nil {
		return o.err
	}
	if len(o.memory)+len(p) < inMemory {
		o.remember(p)
		return nil
	}
	err := o.store(o.memory)
	if err == nil {
		o.memory = nil          // not reused: readers may be using this buffer
		if len(p) == inMemory { // much output at once: its copy in memory would cost more than it saves
			if err = o.store(p); err == nil {
				return nil
			}
		}
	}
	if err != nil && len(o.memory)+len(p) > maxUnstored {
		o.err = fmt.Errorf("keep output: %w", err)
		return o.err
	}
	o.remember(p)
	return nil
}

// remember appends p to memory. The capacity doubles: append alone would copy long buffers more
// often, and exceed the bounds.
func (o *Output) remember(p []byte) {
	if need := len(o.memory) + len(p); need > cap(o.memory) {
		size := max(firstBuffer, cap(o.memory))
		for size < need {
			size *= 2
		}
		o.memory = append(make([]byte, 0, size), o.memory...)
	}
	o.memory = append(o.memory, p...)
}

// store appends p to the file. If it fails, readers find the file unchanged.
func (o *Output) store(p []byte) error {
	if o.file == nil {
		f, err := os.CreateTemp(o.dir, "output-*")
		if err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(err, f.Close())
		}
		o.file = f
	}
	n, err := o.file.WriteAt(p, o.stored)
	if err != nil {
		return err
	}
	o.stored += int64(n)
	return nil
}

// wake wakes the readers that wait.
func (o *Output) wake() {
	if o.grown != nil {
		close(o.grown)
		o.grown = nil
	}
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
	o.memory, o.stored = nil, 0
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

// read returns data at offset, whether the stream ends before it, and, without data, a channel to
// wait for. The data is in memory, or was read from the file into buf, which is replaced if it is
// too small.
func (o *Output) read(offset int64, buf *[]byte) (p []byte, ended bool, grown <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch inFile, size := o.stored-offset, o.stored+int64(len(o.memory)); {
	case offset >= size:
		if o.grown == nil {
			o.grown = make(chan struct{})
		}
		return nil, o.ended, o.grown, o.err
	case inFile <= 0:
		return o.memory[-inFile:], false, nil, nil
	default:
		n := int(min(chunk, inFile))
		if cap(*buf) < n {
			*buf = make([]byte, n)
		}
		n, err = o.file.ReadAt((*buf)[:n], offset)
		return (*buf)[:n], false, nil, err
	}
}

// Follow calls send with successive pieces of the stream from offset, until the stream has ended or
// ctx is done. A piece is valid during the call and must not be changed.
func (o *Output) Follow(ctx context.Context, offset uint64, send func(offset uint64, p []byte) error) error {
	var buf []byte // while older output is read from the file
	at := int64(min(offset, math.MaxInt64))
	for {
		p, ended, grown, err := o.read(at, &buf)
		if err != nil {
			return err
		}
		if len(p) > 0 {
			if err := send(uint64(at), p); err != nil {
				return err
			}
			at += int64(len(p))
			continue
		}
		if ended {
			return nil
		}
		buf = nil
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
