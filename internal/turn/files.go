package turn

import (
	"context"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// fileStore stores the changes of workspaces.
type fileStore interface {
	FilesAppend(ctx context.Context, b workspacefile.Batch) error
	// FilesLogged returns the changes of a workspace in a run that are in the log.
	FilesLogged(ctx context.Context, sessionID, runID string) (workspacefile.Logged, error)
	FilesKnown(ctx context.Context, sessionID string) ([]workspacefile.Known, error)
}

// listFiles sends the stored list of files to a runner that starts without an index.
func (a *attempt) listFiles(ctx context.Context, link *runner.Link) error {
	known, err := a.Store.FilesKnown(ctx, a.in.SessionID)
	if err != nil {
		return Stored(err)
	}
	if err := link.ListFiles(known); err != nil {
		return fmt.Errorf("send the list of stored files to the runner: %w", err)
	}
	return nil
}

// commitFiles stores the changes of the workspace in the messages. A new lineage starts with the
// next batch that contains it.
func (a *attempt) commitFiles(ctx context.Context, messages []runner.Message) error {
	for _, m := range messages {
		a.files.Gather(m)
	}
	b, any := a.files.Take()
	if !any {
		return nil
	}
	b.RunID, b.Token, b.Mask = a.in.RunID, a.token, a.masking.masker.Text
	room := a.limits.Room()
	b.Budget = &workspacefile.Budget{Bytes: room.Bytes, Events: room.Events, Full: a.limits.Full, TooLarge: a.tooLargeLogged}
	if err := a.Store.FilesAppend(ctx, b); err != nil {
		return kept(err)
	}
	a.limits.Other.Bytes += room.Bytes - b.Budget.Bytes
	a.limits.Other.Events += room.Events - b.Budget.Events
	a.limits.Full, a.tooLargeLogged = b.Budget.Full, b.Budget.TooLarge
	return nil
}

// countFiles counts the file events of earlier attempts at the run. The state of the turn does not
// include them, because changes are stored separately from frames.
func (a *attempt) countFiles(ctx context.Context) error {
	if a.start.Run.Attempt <= 1 {
		return nil
	}
	logged, err := a.Store.FilesLogged(ctx, a.in.SessionID, a.in.RunID)
	if err != nil {
		return Stored(err)
	}
	a.limits.Other = conversation.Amount{Bytes: logged.Bytes, Events: logged.Events}
	a.limits.Full, a.tooLargeLogged = a.limits.Full || logged.Full, logged.TooLarge
	return nil
}
