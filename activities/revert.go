package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// revertStore removes what followed a prompt.
type revertStore interface {
	// RunOpen returns the id of the session's open run, or "".
	RunOpen(ctx context.Context, sessionID string) (string, error)
	WorkflowCheck(ctx context.Context, sessionID string) error
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	// RunsFrom returns the runs of a prompt and of all later ones, oldest first.
	RunsFrom(ctx context.Context, sessionID, promptID string) ([]string, error)
	// SessionRevert replaces the stored transcripts and removes the blocks of the given and all
	// later runs. illegal_state while a run is in progress.
	SessionRevert(ctx context.Context, sessionID string, generation int64, runIDs []string, files []transcript.File) error
}

// reverts are the activities that revert agents.
type reverts struct {
	*runners
	*transcripts
	*Config
	store revertStore
	// reverting admits one revert at a time, because it holds the transcripts of a session in
	// memory.
	reverting *semaphore.Weighted
}

// RevertSession reverts the agent of an idle session to its state before a prompt. It stops the
// agent, rewrites its memory in the store and in the sandbox as if the prompt had never been sent,
// and removes the blocks of the prompt. The agent continues from there with the next prompt. Files
// of the workspace are not changed.
//
// The store is changed last. An attempt that finds the memory already rewritten only does the rest.
func (g *reverts) RevertSession(ctx context.Context, in RevertRequest) error {
	stop := beat(ctx)
	defer stop()
	if err := g.store.WorkflowCheck(ctx, in.SessionID); err != nil {
		return stored(err)
	}
	s, err := g.store.SessionGet(ctx, in.SessionID)
	if err != nil {
		return stored(err)
	}
	adapter, err := g.Agents.Get(s.Agent)
	if err != nil {
		return final(Refused, err)
	}
	reverter, ok := adapter.(agent.Reverter)
	if !ok {
		return final(Refused, fmt.Errorf("the agent %s does not support revert", s.Agent))
	}
	sb := g.Sandbox.Open(in.SandboxID)
	before, err := g.pinged(ctx, sb, in.SessionID, in.Generation, time.Second)
	if err != nil {
		return lostOr(ctx, sb, err)
	}
	// The requesting workflow may have been terminated by hand since, and its successor may run a
	// turn; or this attempt is late, and the session has continued after another one.
	if open, err := g.store.RunOpen(ctx, in.SessionID); err != nil {
		return stored(err)
	} else if open != "" {
		return final(Fenced, fmt.Errorf("run %s is in progress", open))
	}
	runs, err := g.store.RunsFrom(ctx, in.SessionID, in.PromptID)
	if err != nil {
		return stored(err)
	}
	if len(runs) == 0 {
		return final(Refused, errors.New("the prompt has had no run"))
	}
	if err := g.sealIdle(ctx, in.SessionID, in.Generation, sb, 2*time.Second, &before.Run); err != nil {
		return lostOr(ctx, sb, err)
	}
	// One at a time: both versions of the files are in memory.
	if err := g.reverting.Acquire(ctx, 1); err != nil {
		return err
	}
	defer g.reverting.Release(1)
	files, err := g.wholeTranscripts(ctx, in.SessionID)
	if err != nil {
		return err
	}
	reverted, err := revert(reverter, files, runs)
	if err != nil {
		// The agent knows none of the runs: an earlier attempt has rewritten its memory, or they
		// ended before they reached the agent.
		g.Logger.InfoContext(ctx, "nothing to revert in the agent's transcript", slog.String("session_id", in.SessionID), slog.Any("error", err))
		reverted = agent.Reverted{Files: files}
	} else if err := g.rewriteUnchanged(ctx, in, sb, runs, files, reverted); err != nil {
		return lostOr(ctx, sb, err)
	}
	if err := g.store.SessionRevert(ctx, in.SessionID, in.Generation, runs, reverted.Files); err != nil {
		return stored(err)
	}
	g.Logger.InfoContext(ctx, "reverted a conversation", slog.String("session_id", in.SessionID),
		slog.String("prompt_id", in.PromptID), slog.Int("runs", len(runs)))
	return nil
}

// revert reverts the agent to its state before the first run that it knows, because a run may have
// ended before it reached the agent.
func revert(r agent.Reverter, files []transcript.File, runs []string) (out agent.Reverted, err error) {
	for _, run := range runs {
		if out, err = r.Revert(files, run); err == nil {
			return out, nil
		}
	}
	return agent.Reverted{}, err
}

// rewriteUnchanged is rewrite, unless another run has begun since the runs to revert were read.
func (g *reverts) rewriteUnchanged(
	ctx context.Context, in RevertRequest, sb *sandbox.Sandbox, runs []string, before []transcript.File, to agent.Reverted,
) error {
	now, err := g.store.RunsFrom(ctx, in.SessionID, in.PromptID)
	if err != nil {
		return stored(err)
	}
	if !slices.Equal(now, runs) {
		return final(Fenced, errors.New("another run has begun"))
	}
	return g.rewrite(ctx, sb, before, to)
}

// rewrite replaces the agent's files in the sandbox.
func (g *reverts) rewrite(ctx context.Context, sb *sandbox.Sandbox, before []transcript.File, to agent.Reverted) error {
	gone := slices.Clone(to.Remove)
	for _, f := range before {
		if !slices.ContainsFunc(to.Files, func(k transcript.File) bool { return k.Path == f.Path }) {
			gone = append(gone, f.Path)
		}
	}
	if len(gone) > 0 {
		result, err := sb.Run(ctx, sandbox.RunSpec{Argv: append([]string{"rm", "-rf", "--"}, gone...), Timeout: commandTimeout})
		if err == nil && result.Code != 0 {
			err = fmt.Errorf("rm ended with %d: %s", result.Code, result.Stderr)
		}
		if err != nil {
			return fmt.Errorf("take memory away: %w", err)
		}
	}
	if len(to.Files) == 0 {
		return nil
	}
	return runnerexec.Put(ctx, sb, runnerexec.InMemory(to.Files))
}
