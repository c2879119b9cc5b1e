package runnerexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// unpackTimeout bounds the command that unpacks an archive.
const unpackTimeout = 10 * time.Minute

// Unpack writes a portable archive into a sandbox.
func Unpack(ctx context.Context, sb *sandbox.Sandbox, archiveID string, content iter.Seq2[[]byte, error]) error {
	process, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().Unpack(archiveID), Timeout: unpackTimeout})
	if err != nil {
		return err
	}
	defer process.Close() // only cuts the link
	var writeErr error
	for piece, err := range content {
		if err == nil {
			_, err = process.Stdin.Write(piece)
		}
		if err != nil {
			writeErr = err
			break
		}
	}
	// After an error the command gets a truncated archive and changes nothing.
	writeErr = errors.Join(writeErr, process.Stdin.Close())
	waited, cancel := context.WithTimeout(ctx, unpackTimeout+time.Second)
	defer cancel()
	code, err := process.Wait(waited)
	if err == nil && code != runner.ExitOK {
		output, _ := io.ReadAll(io.LimitReader(process.Stderr, 1000)) // as far as available
		err = fmt.Errorf("the runner's command ended with %d: %s", code, output)
	}
	return errors.Join(writeErr, err)
}
