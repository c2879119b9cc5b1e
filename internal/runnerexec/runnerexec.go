// Package runnerexec runs commands of the runner in a sandbox, on the worker's side: each is one
// exec that ends with its response. A turn's link, which stays open, is in package turn.
package runnerexec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// putBatch is the number of bytes that one exec writes into a sandbox, unless one file is
	// larger.
	putBatch = 64 << 20
	// putTimeout bounds such an exec, plus a second for each MiB.
	putTimeout = 5 * time.Minute
)

// Run runs a command of the runner to its end.
func Run(ctx context.Context, sb *sandbox.Sandbox, e runner.Exec, timeout time.Duration) ([]byte, error) {
	result, err := sb.Run(ctx, sandbox.RunSpec{Argv: e.Argv, Stdin: e.Stdin, Timeout: timeout, MaxOutput: 16 << 20})
	if err != nil {
		return nil, err
	}
	if result.Code != runner.ExitOK {
		return nil, &ExitError{Code: result.Code, Stderr: result.Stderr}
	}
	return result.Stdout, nil
}

// ExitError is the failure of a command of the runner.
type ExitError struct {
	Code   int
	Stderr []byte
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("the runner's command ended with %d: %s", e.Code, e.Stderr)
}

// Put writes files into a sandbox, each atomically.
func Put(ctx context.Context, sb *sandbox.Sandbox, files []runner.PutFile) error {
	for len(files) > 0 {
		n, size := 1, files[0].Size
		for n < len(files) && size+files[n].Size <= putBatch {
			size += files[n].Size
			n++
		}
		if err := putOnce(ctx, sb, files[:n], putTimeout+time.Duration(size>>20)*time.Second); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

func putOnce(ctx context.Context, sb *sandbox.Sandbox, files []runner.PutFile, timeout time.Duration) error {
	process, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().Put(), Timeout: timeout})
	if err != nil {
		return err
	}
	defer process.Close() // only cuts the link
	if err := errors.Join(runner.WritePut(process.Stdin, files), process.Stdin.Close()); err != nil {
		return err
	}
	waited, cancel := context.WithTimeout(ctx, timeout+time.Second)
	defer cancel()
	code, err := process.Wait(waited)
	if err == nil && code != runner.ExitOK {
		err = fmt.Errorf("the runner's command ended with %d", code)
	}
	return err
}

// InMemory converts files in memory for Put.
func InMemory(files []transcript.File) []runner.PutFile {
	out := make([]runner.PutFile, len(files))
	for i, f := range files {
		out[i] = runner.PutFile{Path: f.Path, Size: int64(len(f.Data)), Content: func(yield func([]byte, error) bool) { yield(f.Data, nil) }}
	}
	return out
}
