package activities

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// fileStore keeps what has happened in workspaces.
type fileStore interface {
	FilesAppend(ctx context.Context, b session.FilesBatch) error
	// FilesTold returns what the log has of the changes of a workspace in a run.
	FilesTold(ctx context.Context, sessionID, runID string) (session.FilesTold, error)
	FilesKnown(ctx context.Context, sessionID string) ([]session.KnownFile, error)
}

// fileGatherer makes batches of a runner's reports on the workspace.
type fileGatherer struct {
	batch session.FilesBatch
	bytes int
	any   bool
}

// gather reports whether the message is about the workspace.
func (g *fileGatherer) gather(m runner.Message) bool {
	switch m := m.(type) {
	case *runner.FilesBegun:
		g.batch.Lineage, g.batch.Base = m.Lineage, m.Base
	case *runner.FileChanged:
		g.batch.Changes = append(g.batch.Changes, m.FileChange)
		g.bytes += len(m.Data) + len(m.Path) + messageCost
	case *runner.FilesBounded:
		g.batch.BoundedSeq = m.Seq
	case *runner.Diff:
		g.batch.Diff = &m.WorkspaceDiff
	default:
		return false
	}
	g.any = true
	return true
}

// take returns the batch and begins the next, in the same lineage.
func (g *fileGatherer) take() (session.FilesBatch, bool) {
	b, any := g.batch, g.any
	g.batch.Changes, g.batch.BoundedSeq, g.batch.Diff = nil, 0, nil
	g.bytes, g.any = 0, false
	return b, any
}

// listFiles sends a runner that starts without an index the files that are stored.
func (t *turn) listFiles(ctx context.Context, link *runner.Link) error {
	known, err := t.store.FilesKnown(ctx, t.in.SessionID)
	if err != nil {
		return stored(err)
	}
	if err := link.ListFiles(known); err != nil {
		return fmt.Errorf("send the list of stored files to the runner: %w", err)
	}
	return nil
}

// commitFiles stores the changes of the workspace in the messages. A new lineage starts with the
// next batch that has it.
func (t *turn) commitFiles(ctx context.Context, messages []runner.Message) error {
	for _, m := range messages {
		t.files.gather(m)
	}
	b, any := t.files.take()
	if !any {
		return nil
	}
	b.RunID, b.Token, b.Mask = t.in.RunID, t.token, t.masking.masker.Text
	room := t.limits.Room()
	b.Budget = &session.FilesBudget{Bytes: room.Bytes, Events: room.Events, Full: t.limits.Full, TooLarge: t.tooLargeTold}
	if err := t.store.FilesAppend(ctx, b); err != nil {
		return kept(err)
	}
	t.limits.Beside.Bytes += room.Bytes - b.Budget.Bytes
	t.limits.Beside.Events += room.Events - b.Budget.Events
	t.limits.Full, t.tooLargeTold = b.Budget.Full, b.Budget.TooLarge
	return nil
}

// countFiles counts the file events of earlier attempts at the run, which the state of the turn does not have: changes are
// stored apart from frames.
func (t *turn) countFiles(ctx context.Context) error {
	if t.start.Run.Attempt <= 1 {
		return nil
	}
	told, err := t.store.FilesTold(ctx, t.in.SessionID, t.in.RunID)
	if err != nil {
		return stored(err)
	}
	t.limits.Beside = conversation.Spent{Bytes: told.Bytes, Events: told.Events}
	t.limits.Full, t.tooLargeTold = t.limits.Full || told.Full, told.TooLarge
	return nil
}

// sealBudget is what the changes that a seal reports may add to the log: as much as a turn.
func sealBudget() *session.FilesBudget {
	return &session.FilesBudget{Bytes: conversation.MaxTurnBytes, Events: conversation.MaxTurnEvents}
}

// newFileGatherer gathers for a session whose stored files are at a position.
func newFileGatherer(p session.FilesPosition, generation int64) fileGatherer {
	return fileGatherer{batch: session.FilesBatch{
		SessionID: p.Session, Generation: generation, Lineage: p.Lineage, Base: p.Base,
	}}
}
