package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// Verify compares the sandbox with the manifest on stdin. If requested, it concurrently asks the
// runner whether it serves.
func Verify(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var r runner.VerifyRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	v, err := verification(ctx, r)
	if err != nil {
		return err
	}
	return reply(stdout, v)
}

// verification executes a request of verify.
func verification(ctx context.Context, r runner.VerifyRequest) (runner.Verification, error) {
	var serving errgroup.Group
	var state *runner.Ping
	if r.Ping != nil {
		serving.Go(func() error {
			data, err := ping(ctx, r.State, *r.Ping, r.Manifest.Tree != nil)
			if err != nil {
				return err
			}
			return json.Unmarshal(data, &state)
		})
	}
	v, err := verify(ctx, r)
	if pingErr := serving.Wait(); pingErr != nil {
		return runner.Verification{}, pingErr
	}
	if err != nil {
		return runner.Verification{}, err
	}
	v.Runner = state
	if want := r.Manifest.Tree; want != nil && r.Workspace != "" {
		v.Tree = compareTree(ctx, r, state)
	}
	return v, nil
}

// compareTree compares the workspace with the manifest. The runner listed the workspace when it
// started. Only if that listing does not match the manifest, compareTree lists the workspace again
// to name the differences.
func compareTree(ctx context.Context, r runner.VerifyRequest, state *runner.Ping) *manifest.TreeDifference {
	want := *r.Manifest.Tree
	if state != nil && state.Found != "" && state.Found == want.Digest {
		return &manifest.TreeDifference{}
	}
	d := workspace.CompareTree(ctx, r.Workspace, runner.IndexDir(r.State), want)
	return &d
}

func verify(ctx context.Context, r runner.VerifyRequest) (runner.Verification, error) {
	v := runner.Verification{Missing: []string{}, Mismatched: []string{}}
	for _, want := range r.Manifest.AgentFiles {
		got, err := describe(want.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			v.Missing = append(v.Missing, want.Path)
		case err != nil:
			return v, err
		case got == want:
		case got.Size > want.Size && beginsWith(want):
			v.Longer = append(v.Longer, want.Path)
		default:
			v.Mismatched = append(v.Mismatched, want.Path)
			v.Found = append(v.Found, got)
		}
	}
	if want := r.Manifest.Git; want != nil {
		got, err := describeGit(ctx, r.Workspace)
		switch {
		case ctx.Err() != nil:
			return v, ctx.Err()
		case err != nil: // it could be described before
			v.Mismatched = append(v.Mismatched, runner.GitHead)
		case got == nil:
			v.Missing = append(v.Missing, runner.GitHead)
		default:
			if got.Head != want.Head {
				v.Mismatched = append(v.Mismatched, runner.GitHead)
			}
			if got.DirtyHash != want.DirtyHash {
				v.Mismatched = append(v.Mismatched, runner.GitChanges)
			}
		}
	}
	slices.Sort(v.Missing)
	slices.Sort(v.Mismatched)
	return v, nil
}
