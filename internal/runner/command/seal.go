package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// Seal seals the sandbox and prints what the worker does not have, and
// the manifest.
func Seal(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	var r runner.SealRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	lines := json.NewEncoder(out)
	data, err := call(ctx, dir, dialBudget, &runner.Command{Token: r.Token, Seal: &r}, func(m runner.Message) error {
		line, err := sealLine(m)
		if err != nil {
			return err
		}
		return lines.Encode(line)
	})
	if err != nil {
		return errors.Join(err, out.Flush())
	}
	var s runner.Sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	m, err := takeManifest(ctx, s.Files, r.Workspace)
	if err != nil {
		return errors.Join(fmt.Errorf("take manifest: %w", err), out.Flush())
	}
	if m.Runner, err = runner.Build("/proc/self/exe"); err != nil {
		fmt.Fprintln(os.Stderr, "overwinter-runner:", err) // then it is replaced at the next wake
	}
	if s.DiffKey != "" {
		diff, err := workspace.TakeDiff(ctx, r.Workspace, runner.IndexDir(dir), s.DiffKey)
		if err == nil {
			err = lines.Encode(runner.SealLine{Diff: &runner.Diff{Diff: diff}})
		} else {
			fmt.Fprintln(os.Stderr, "overwinter-runner: no diff of the workspace:", err)
			err = nil // the one before stays: no snapshot fails for it
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	if r.Workspace != "" { // last: nothing that writes below it may follow
		tree, err := workspace.TakeTree(ctx, r.Workspace, runner.IndexDir(dir))
		if err != nil { // a session must be able to sleep without it
			fmt.Fprintln(os.Stderr, "overwinter-runner: no index of the workspace:", err)
			tree = manifest.Tree{Unchecked: "no index was written"}
		}
		m.Tree = &tree
	}
	err = lines.Encode(runner.SealLine{Seal: &runner.Seal{Manifest: m, Run: s.Run, LastFrame: s.LastFrame}})
	return errors.Join(err, out.Flush())
}

func sealLine(m runner.Message) (runner.SealLine, error) {
	switch m := m.(type) {
	case *runner.Segment:
		return runner.SealLine{Segment: m}, nil
	case *runner.FilesBegun:
		return runner.SealLine{Begun: m}, nil
	case *runner.FileChanged:
		return runner.SealLine{Changed: m}, nil
	case *runner.FilesBounded:
		return runner.SealLine{Bounded: m}, nil
	}
	return runner.SealLine{}, nothingElse(m)
}
