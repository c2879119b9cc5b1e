package sandbox

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// defaultMaxOutput bounds how much of each stream Run keeps.
const defaultMaxOutput = 1 << 20

// drainGrace is how long Run continues to read after the process has exited, because a child that
// it left running may hold a stream open forever.
const drainGrace = 2 * time.Second

// RunSpec describes a process to run until it exits.
type RunSpec struct {
	Argv    []string // as in ExecSpec
	Dir     string
	Env     map[string]string
	Timeout time.Duration
	Stdin   []byte
	// MaxOutput is how many bytes of each stream are kept, from its beginning; the rest is
	// discarded. Default 1 MiB.
	MaxOutput int
}

// Result is the result of a process.
type Result struct {
	Code           int
	Stdout, Stderr []byte
	Truncated      bool // a stream was longer than MaxOutput
}

// Run runs a process until it exits. A non-zero exit code is not an error.
func (s *Sandbox) Run(ctx context.Context, spec RunSpec) (Result, error) {
	limit := spec.MaxOutput
	if limit <= 0 {
		limit = defaultMaxOutput
	}
	p, err := s.Exec(ctx, ExecSpec{Argv: spec.Argv, Dir: spec.Dir, Env: spec.Env, Timeout: spec.Timeout})
	if err != nil {
		return Result{}, err
	}
	out, errs := &head{limit: limit}, &head{limit: limit}
	var readers, writer sync.WaitGroup
	var outErr, errErr error
	readers.Go(func() { _, outErr = io.Copy(out, p.Stdout) })
	readers.Go(func() { _, errErr = io.Copy(errs, p.Stderr) })
	writer.Go(func() {
		if len(spec.Stdin) > 0 {
			_, _ = p.Stdin.Write(spec.Stdin) // a process need not read all of it
		}
		_ = p.Stdin.Close()
	})
	code, err := p.Wait(ctx)
	drained := make(chan struct{})
	go func() {
		readers.Wait()
		close(drained)
	}()
	late := false
	if err == nil {
		timer := time.NewTimer(drainGrace)
		defer timer.Stop()
		select {
		case <-drained:
		case <-timer.C:
			late = true
		}
	}
	_ = p.Close() // unblocks remaining readers
	<-drained
	writer.Wait()
	if err != nil {
		return Result{}, err
	}
	if !late {
		for _, e := range []error{outErr, errErr} {
			if e != nil {
				return Result{}, &Error{Code: driver.CodeOf(e), Op: "run", ID: s.id, Err: e}
			}
		}
	}
	return Result{Code: code, Stdout: out.Bytes(), Stderr: errs.Bytes(), Truncated: out.cut || errs.cut}, nil
}

// head keeps the beginning of what is written to it.
type head struct {
	bytes.Buffer
	limit int
	cut   bool
}

// ReadFrom hides the buffer's own method, which has no limit.
func (h *head) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{h}, r)
}

func (h *head) Write(b []byte) (int, error) {
	room := h.limit - h.Len()
	if room < len(b) {
		h.cut = true
		_, _ = h.Buffer.Write(b[:max(room, 0)]) // never fails
		return len(b), nil
	}
	return h.Buffer.Write(b)
}
