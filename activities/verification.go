package activities

import (
	"context"
	"fmt"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// verification lists the differences between a sandbox and a manifest.
type verification struct {
	differing []string // missing or different agent files, and differences in git
	workspace []string // entries of the workspace that are missing, changed or added
	unchecked []string // not compared
}

// linkFollows reports whether a prompt that wakes a session will use a link to its new sandbox.
func (g *restores) linkFollows(in SandboxRequest) bool {
	// The runner of another build may not know of it.
	return g.Links != nil && in.Then != nil && in.Then.Reason == session.ReasonPrompt && g.Runner.Program != ""
}

// verifyRunning is verify for a new sandbox, in the command that waits for its runner. awake
// reports that the runner has answered. If a link follows, the exec of the link is used.
func (g *restores) verifyRunning(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, m manifest.Manifest) (v verification, awake bool, err error) {
	request, err := g.ping(ctx, in.SessionID, in.Generation, awakeTimeout)
	if err != nil {
		return verification{}, false, err
	}
	var found runner.Verification
	if g.linkFollows(in) {
		ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		if found, err = g.Links.Verify(ctx, sb, runner.DefaultPaths().VerifyRequest(m, &request)); err != nil {
			err = fmt.Errorf("verify: %w", err)
		}
	} else {
		found, err = g.runVerify(ctx, sb, runner.DefaultPaths().VerifyRunning(m, &request))
	}
	return verificationOf(found, m), err == nil && found.Runner != nil, err
}

// verify compares a sandbox with a bundle's manifest.
func (g *restores) verify(ctx context.Context, sb *sandbox.Sandbox, m manifest.Manifest) (verification, error) {
	v, err := g.verifyFiles(ctx, sb, m)
	return verificationOf(v, m), err
}

func verificationOf(v runner.Verification, m manifest.Manifest) verification {
	out := verification{differing: slices.Concat(v.Missing, v.Mismatched, v.Longer)}
	switch {
	case m.Tree == nil:
		out.unchecked = []string{"workspace: the bundle has no index of it"}
	case v.Tree == nil:
		out.unchecked = []string{"workspace: the runner does not compare it"}
	default:
		out.workspace, out.unchecked = v.Tree.Paths, v.Tree.Unchecked
		if v.Tree.More > 0 {
			out.workspace = append(out.workspace, fmt.Sprintf("%d more entries of the workspace", v.Tree.More))
		}
	}
	return out
}

func (g *restores) verifyFiles(ctx context.Context, sb *sandbox.Sandbox, m manifest.Manifest) (runner.Verification, error) {
	return g.runVerify(ctx, sb, runner.DefaultPaths().Verify(m))
}

func (g *restores) runVerify(ctx context.Context, sb *sandbox.Sandbox, e runner.Exec) (runner.Verification, error) {
	stdout, err := runnerexec.Run(ctx, sb, e, verifyTimeout)
	if err != nil {
		return runner.Verification{}, fmt.Errorf("verify: %w", err)
	}
	v, err := runner.ParseVerify(stdout)
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	return v, nil
}
