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

// Seal seals the sandbox and prints the data that the worker lacks, and then the manifest.
func Seal(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) (err error) {
	var r runner.SealRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	defer func() { err = errors.Join(err, out.Flush()) }()
	lines := json.NewEncoder(out)
	s, err := seal(ctx, dir, r, func(m runner.Message) error {
		line, err := sealLine(m)
		if err != nil {
			return err
		}
		return lines.Encode(line)
	})
	if err != nil {
		return err
	}
	return lines.Encode(runner.SealLine{Seal: &s})
}

// seal seals the sandbox, passes the data that the worker lacks to emit, and returns the answer.
func seal(ctx context.Context, dir string, r runner.SealRequest, emit func(runner.Message) error) (runner.Seal, error) {
	view := newView(r.Workspace)
	view.described = r.Files != nil || r.FilesFrom != nil
	defer view.stop()
	data, err := call(ctx, dir, dialBudget, &runner.Command{Token: r.Token, Seal: &r, Quiet: true}, func(m runner.Message) error {
		if _, ok := m.(*runner.Quiet); ok {
			view.begin(ctx) // concurrently, the runner sends the data that the worker lacks
			return nil
		}
		return emit(m)
	})
	if err != nil {
		return runner.Seal{}, err
	}
	var s runner.Sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return runner.Seal{}, fmt.Errorf("read answer: %w", err)
	}
	if s.ListFiles {
		return runner.Seal{LastFrame: -1}, nil
	}
	var m manifest.Manifest
	if m.AgentFiles, err = agentFiles(s.Files); err != nil {
		return runner.Seal{}, fmt.Errorf("take manifest: %w", err)
	}
	if m.Runner, err = runner.Build("/proc/self/exe"); err != nil {
		fmt.Fprintln(os.Stderr, "overwinter-runner:", err) // in that case the runner is replaced at the next wake
	}
	view.begin(ctx) // a runner of an earlier release has not sent that message
	m.Git, err = view.git()
	if ctx.Err() != nil {
		return runner.Seal{}, ctx.Err()
	}
	if err != nil { // a corrupt or slow repository must not prevent hibernation; the tree covers its files
		fmt.Fprintln(os.Stderr, "overwinter-runner: the repository is not described:", err)
	}
	if s.DiffKey != "" {
		diff, err := workspace.TakeDiff(ctx, r.Workspace, runner.IndexDir(dir), s.DiffKey)
		if err == nil {
			err = emit(&runner.Diff{Diff: diff})
		} else {
			fmt.Fprintln(os.Stderr, "overwinter-runner: no diff of the workspace:", err)
			err = nil // the previous diff remains; a snapshot must not fail because of this
		}
		if err != nil {
			return runner.Seal{}, err
		}
	}
	if m.Tree = s.Tree; r.Workspace != "" && (m.Tree == nil || s.DiffKey != "") {
		// The listing must come last: filters of git may write to the workspace.
		tree, err := view.tree(ctx, s.DiffKey != "").Take(ctx, runner.IndexDir(dir))
		if err != nil { // a session must be able to hibernate without it
			fmt.Fprintln(os.Stderr, "overwinter-runner: no index of the workspace:", err)
			tree = manifest.Tree{Unchecked: "no index was written"}
		}
		m.Tree = &tree
	}
	return runner.Seal{Manifest: m, Run: s.Run, LastFrame: s.LastFrame, Files: r.Files != nil || r.FilesFrom != nil}, nil
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
	case *runner.Diff:
		return runner.SealLine{Diff: m}, nil
	}
	return runner.SealLine{}, nothingElse(m)
}
