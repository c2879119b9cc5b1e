package api

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Store is what the API needs of Postgres. Every method is one transaction and returns
// *failure.Error for errors that a client may see.
type Store interface {
	// SessionCreate stores a session and its first prompt, if there is one. With
	// a key that was used within 24 hours it returns the session made then, with
	// created false, or idempotency_conflict when the digest is another.
	SessionCreate(ctx context.Context, s session.Session, first *session.Prompt, idem Idempotency) (stored session.Session, created bool, err error)
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	SessionList(ctx context.Context, f session.ListFilter) (items []session.Session, nextCursor string, err error)
	// SessionPatch changes what is given, and appends a title event for a new title.
	SessionPatch(ctx context.Context, sessionID string, p session.Patch) (session.Session, error)

	// PurgeRequest records that everything of a session is to be erased, and returns the session.
	PurgeRequest(ctx context.Context, sessionID string) (session.Session, error)

	// PromptSubmit stores a prompt at the end of its session's queue with the events prompt and
	// queue. The same id and body again returns the stored prompt, with created false; another body
	// is prompt_conflict. Others: session_not_found, session_terminated, session_in_error,
	// queue_full.
	PromptSubmit(ctx context.Context, p session.Prompt) (stored session.Prompt, position int64, created bool, err error)
	PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
	// PromptList is oldest first.
	PromptList(ctx context.Context, sessionID string, limit int, cursor string) (items []session.Prompt, nextCursor string, err error)
	// PromptWithdraw cancels a queued prompt; illegal_state when it is not queued any more.
	PromptWithdraw(ctx context.Context, sessionID, promptID string) (session.Prompt, error)

	// CommandSubmit judges a command by the session's row and stores it as pending. The result's command is
	// nil where there was nothing to do. session_not_found, session_terminated, illegal_state,
	// prompt_not_found for a revert, run_not_found for an abort.
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)

	// QuestionList is newest first, of one status or with none of all.
	QuestionList(ctx context.Context, sessionID string, status session.QuestionStatus, limit int, cursor string) (items []session.Question, nextCursor string, err error)
	QuestionGet(ctx context.Context, sessionID, questionID string) (session.Question, error)
	// QuestionAnswer answers an open question with the event question_resolved. illegal_state when
	// it is not open any more or its time is over, invalid_request when the answer does not fit.
	// The answer is as durable then as the row: whichever worker has the turn hands it over.
	QuestionAnswer(ctx context.Context, sessionID, questionID string, answer session.Answer) (session.Question, error)

	// FileList is by path.
	FileList(ctx context.Context, sessionID, prefix string, limit int, cursor string) (items []session.FileInfo, nextCursor string, err error)
	// FileGet returns a file of the workspace with its content, if that is saved; file_not_found
	// when there is none, or none any more.
	FileGet(ctx context.Context, sessionID, path string) (session.FileContent, error)
	// DiffGet returns the newest diff of the workspace; nil when none was taken yet.
	DiffGet(ctx context.Context, sessionID string) (*session.WorkspaceDiff, error)

	// ProfileList is newest first, each in its newest version.
	ProfileList(ctx context.Context, limit int, cursor string) (items []session.Profile, nextCursor string, err error)
	// ProfileGet finds a profile by id or name, in its newest version where version is 0.
	ProfileGet(ctx context.Context, idOrName string, version int64) (session.Profile, error)
	// ProfileCreate stores version 1; illegal_state where the name is taken.
	ProfileCreate(ctx context.Context, p session.Profile) (session.Profile, error)
	// ProfileUpdate stores the next version; illegal_state where version is neither 0 nor the newest.
	ProfileUpdate(ctx context.Context, p session.Profile, version int64) (session.Profile, error)
	// ProfileDelete leaves its versions to the sessions that have them.
	ProfileDelete(ctx context.Context, id string) error

	// SecretPut stores the sealed value of a secret, and the hosts that it is bound to, in place of an older one.
	SecretPut(ctx context.Context, name string, sealed []byte, hosts ...string) (info session.SecretInfo, created bool, err error)
	// SecretsList is by name.
	SecretsList(ctx context.Context) ([]session.SecretInfo, error)
	// SecretDelete deletes a secret; secret_not_found when there is none.
	SecretDelete(ctx context.Context, name string) error

	// ConversationPage returns blocks in the order in which they appeared, as many as limit or a bound of
	// bytes allows, and the cursor of the next page. Seq is the position at which the first page was read.
	ConversationPage(ctx context.Context, sessionID string, limit int, cursor string) (page conversation.Conversation, nextCursor string, err error)
	// TranscriptPositions lists the native transcripts by path; session_not_found.
	TranscriptPositions(ctx context.Context, sessionID string) ([]session.TranscriptPosition, error)
	// TranscriptContent reads what a position describes in pieces of at most 1 MiB, each valid until the next.
	TranscriptContent(ctx context.Context, sessionID string, p session.TranscriptPosition) iter.Seq2[[]byte, error]
	// Ready reports whether Postgres can be worked with: it answers, has the right schema and can be
	// written to. The message of an error says why not, and is shown to anyone who asks.
	Ready(ctx context.Context) error
}

// Idempotency is a client's key for a create and the digest of its body. The
// zero value means that no key was given.
type Idempotency = session.Idempotency

// Signaler signals and queries the workflows. Errors are *failure.Error: unavailable when
// Temporal does not answer, session_not_found when no workflow is open.
type Signaler interface {
	// SignalPrompt notifies the session's workflow of a prompt and starts the workflow if it is not open;
	// with an empty prompt id it only makes sure that the workflow is open.
	SignalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) error
	// SignalCommands notifies the session's workflow that commands are pending and starts the workflow if
	// it is not open; SignalStop, that one of them is a stop.
	SignalCommands(ctx context.Context, sessionID string) error
	SignalStop(ctx context.Context, sessionID string) error
	// SignalSettings notifies an open workflow of a changed idle timeout; none open is no error.
	SignalSettings(ctx context.Context, sessionID string, idleTimeout time.Duration) error
	// State is the workflow's own view, as JSON.
	State(ctx context.Context, sessionID string) (json.RawMessage, error)
	Ping(ctx context.Context) error
}
