package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// Store is the part of Postgres that the API uses. Each group of routes declares its own part next
// to its handlers. Every method is one transaction and returns *failure.Error for errors that a
// client may see.
type Store interface {
	sessionStore
	promptStore
	claimStore
	collectStore
	commandStore
	holdStore
	queueStore
	questionStore
	fileStore
	attachmentStore
	reportStore
	profileStore
	secretStore
	conversationStore
	bundleStore
	forkStore
	archiveStore
	runStore
	transcriptStore
	streamStore
	lifecycleStore
	turnStore
	readyStore
	presenceStore
	changeStore
	whyStore
}

// Idempotency is a client's key for a create and the digest of the body. The zero value means that
// no key was given.
type Idempotency = session.Idempotency

// Signaler signals and queries the workflows. Errors are *failure.Error: unavailable if Temporal
// does not answer, session_not_found if no workflow is open.
type Signaler interface {
	// SignalPrompt notifies the session's workflow of a prompt and starts the workflow if it is not
	// open. With an empty prompt id it only ensures that the workflow is open.
	SignalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) error
	// SignalAttended reports prompts that arrived while the session had an attendant. The workflow
	// only records them.
	SignalAttended(ctx context.Context, sessionID string, prompts []session.QueuedPrompt) error
	// SignalCommands notifies the session's workflow that commands are pending and starts the
	// workflow if it is not open. SignalStop notifies it that one of them is a stop.
	SignalCommands(ctx context.Context, sessionID string) error
	SignalStop(ctx context.Context, sessionID string) error
	// SignalSettings notifies an open workflow of a changed idle timeout. It is not an error if no
	// workflow is open.
	SignalSettings(ctx context.Context, sessionID string, idleTimeout time.Duration) error
	// State returns the workflow's own view, as JSON.
	State(ctx context.Context, sessionID string) (json.RawMessage, error)
	// History reads the facts for explanations from the history of the session's workflow. It does
	// not fail: if Temporal is unavailable, the result reports that.
	History(ctx context.Context, sessionID string) why.History
	// HistoryPage reads the history of the session's workflow, the newest run first, with its payloads masked.
	HistoryPage(
		ctx context.Context, sessionID string, limit int, cursor string, mask func(json.RawMessage) json.RawMessage,
	) (events []resource.HistoryEventJSON, nextCursor string, err error)
	Ping(ctx context.Context) error
}
