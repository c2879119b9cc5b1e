package activities

import (
	"context"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Store is what activities need of Postgres. Every method is one transaction, safe to call again
// with the same arguments, and returns *failure.Error for errors that are reported:
// session_not_found, illegal_state for a call that is fenced off by a newer generation, attempt or
// transition.
type Store interface {
	// SessionOpen marks the session loaded and returns all a workflow must know, with a
	// new dispatch for a run that is open. workflowRunID is the run of the workflow that does.
	SessionOpen(ctx context.Context, sessionID, workflowRunID string) (session.Loaded, error)
	// WorkflowCheck returns stale_workflow for a context of a workflow run if another run of the workflow has opened
	// the session since. Writes to a session are refused for the same reason.
	WorkflowCheck(ctx context.Context, sessionID string) error
	// SessionLook returns what waits for a session's workflow, and records that the run has read it.
	SessionLook(ctx context.Context, sessionID, workflowRunID string) (session.Look, error)
	// SessionTakeBack is SessionLook for a session that may have an attendant, whose attendance ends unless a run is in
	// progress.
	SessionTakeBack(ctx context.Context, sessionID, workflowRunID string) (session.TakenBack, error)
	// AttendantDue reports whether a claim of the attendant may come to anything. It locks nothing.
	AttendantDue(ctx context.Context, sessionID, attendant string) (bool, error)
	// AttendantLeave ends an attendance and returns what waits for the workflow; nil if the session has another attendant,
	// or none.
	AttendantLeave(ctx context.Context, sessionID, attendant, workflowRunID string) (*session.Look, error)
	// CommandSubmit stores a command as pending; one that no client sent, with its reason.
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
	// CommandEnd ends a command that was carried out, or could not be, without a transition.
	CommandEnd(ctx context.Context, sessionID, commandID string, status session.CommandStatus, reason string) error
	// SessionGet returns the session as it is stored.
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	// SessionClose marks it not loaded: its workflow is about to complete.
	SessionClose(ctx context.Context, sessionID string) error
	// TransitionRecord stores a transition, projects it on the session (status,
	// reason, receipt, running time, sandbox) and appends the status event. A
	// transition with the same number and the same ends changes nothing.
	TransitionRecord(ctx context.Context, t session.Transition) error

	// ProblemTell adds an error event to the session's log.
	ProblemTell(ctx context.Context, sessionID, code, message string) error

	// SetupRecord adds a setup event to the session's log: a stage of its workspace (clone, setup) is
	// started, completed or failed.
	SetupRecord(ctx context.Context, sessionID, stage, status string) error

	// NetworkRecord adds network events of a run to the session's log.
	NetworkRecord(ctx context.Context, sessionID, runID string, refusals []session.Refusal) error

	// GenerationReserve records the intent to make the sandbox of a generation.
	GenerationReserve(ctx context.Context, sessionID string, generation int64, imageID string) error
	// SandboxLinkKeySet records which key the token of a sandbox's runner is derived from, and returns
	// the one that was recorded first.
	SandboxLinkKeySet(ctx context.Context, sessionID string, generation int64, keyID string) (string, error)
	// SandboxLinkKey returns it: "" if none is recorded.
	SandboxLinkKey(ctx context.Context, sessionID string, generation int64) (string, error)
	// SandboxCloned records that the repository is complete in the sandbox of a generation.
	SandboxCloned(ctx context.Context, sessionID string, generation int64) error
	// SandboxIsCloned reports whether it is.
	SandboxIsCloned(ctx context.Context, sessionID string, generation int64) (bool, error)
	// SandboxRecord stores which sandbox the generation got and when its life ends.
	SandboxRecord(ctx context.Context, sessionID string, generation int64, sandboxID string, status session.SandboxStatus, deadline time.Time) error
	// SandboxesSeen stores the health of sandboxes as it was found now. Nothing is
	// written for one whose status is the same.
	SandboxesSeen(ctx context.Context, seen []session.SandboxSeen) error
	// SandboxEnd records that the sandbox of a generation is gone.
	SandboxEnd(ctx context.Context, sessionID string, generation int64, reason string) error
	// SandboxesOpen lists every sandbox not seen to end: of one session, or with
	// an empty id of all.
	SandboxesOpen(ctx context.Context, sessionID string) ([]session.SandboxRow, error)
	// SandboxesPage lists open sandboxes after a key, in the order of their keys.
	SandboxesPage(ctx context.Context, after session.SandboxKey, limit int) ([]session.SandboxRow, error)
	// SandboxesAbandoned lists those older than age whose session has moved on without them.
	SandboxesAbandoned(ctx context.Context, age time.Duration, after session.SandboxKey, limit int) ([]session.SandboxRow, error)
	// SandboxesUnowned returns the indexes of the keys that no open sandbox has.
	SandboxesUnowned(ctx context.Context, keys []session.SandboxKey) ([]int, error)

	// SandboxUnsaved returns the newest sandbox in which the session has worked and that its newest
	// bundle does not cover, ended or not; false if there is none.
	SandboxUnsaved(ctx context.Context, sessionID string) (session.UnsavedSandbox, bool, error)
	// SandboxesFailed counts the sandboxes of a session that were made of an image and ended before
	// their runner ever answered.
	SandboxesFailed(ctx context.Context, sessionID, imageID string) (int64, error)

	// RunBegin claims a prompt for a run: queued to processing in one statement,
	// with the events turn_start, prompt and queue.
	RunBegin(ctx context.Context, sessionID, promptID, runID string, generation int64) (session.RunVerdict, error)
	// RunAttach makes token the attempt whose appends count and returns what the
	// worker needs. illegal_state when the run is over, or another attempt that is
	// not older than by has it.
	RunAttach(ctx context.Context, runID, token string, by session.Dispatch) (session.RunStart, error)
	// RunClaim claims the next prompt for an attendant, with the attempt that runs it.
	RunClaim(ctx context.Context, c session.Claim) (session.Claimed, error)
	// RunDoing records what the attempt with the token does with the run's frames.
	RunDoing(ctx context.Context, runID, token string, doing session.Doing) error
	// RunFence makes token the only one that counts, so that no worker can add to
	// the run any more, and returns it like RunAttach, without counting an attempt.
	RunFence(ctx context.Context, runID, token string) (session.RunStart, error)
	// RunOpen returns the id of the session's run that is not over; "" when there is none.
	RunOpen(ctx context.Context, sessionID string) (string, error)
	// RunGet returns a run as it stands.
	RunGet(ctx context.Context, runID string) (session.Run, error)
	// RunEnd gives run and prompt their outcome with the events turn_end, prompt
	// and queue, and counts metrics. A run that is over keeps its outcome, which
	// is returned either way.
	RunEnd(ctx context.Context, ending session.RunEnding) (session.Run, error)
	// RunReturn puts the prompt of a run that never reached the agent back in its place in the
	// queue; with untouched only if no attempt has ever attached. It reports whether the prompt is
	// queued.
	RunReturn(ctx context.Context, runID, reason string, untouched bool) (bool, error)
	// PromptsCancel ends every prompt that is not over.
	PromptsCancel(ctx context.Context, sessionID, reason string) (int64, error)
	// PromptRequeue puts a prompt whose outcome is unknown back in the queue, as its policy asks.
	PromptRequeue(ctx context.Context, sessionID, promptID string) error

	// RunsFrom are the runs of a prompt and of all that came after it, oldest first.
	RunsFrom(ctx context.Context, sessionID, promptID string) ([]string, error)
	// SessionRevert replaces the stored transcripts and removes the blocks of runs and of what
	// followed them. illegal_state while a run is under way.
	SessionRevert(ctx context.Context, sessionID string, generation int64, runIDs []string, files []session.TranscriptFile) error

	// QuestionsPending are the questions of a run whose end its agent has not received, open ones
	// included; with again also those whose end an earlier attempt has sent.
	QuestionsPending(ctx context.Context, runID string, again bool) ([]session.Question, error)
	// QuestionExpire ends an open question whose time is over and returns the question.
	QuestionExpire(ctx context.Context, sessionID, questionID string) (session.Question, error)
	// QuestionsDelivered records that the ends of questions were sent to the agent. It counts only
	// while token is the run's newest.
	QuestionsDelivered(ctx context.Context, token string, questionIDs []string) error

	// TranscriptAppend stores segments; what is stored already or beyond a limit is skipped, a gap is illegal_state.
	TranscriptAppend(ctx context.Context, segments []session.TranscriptSegment) error
	TranscriptPositions(ctx context.Context, sessionID string) ([]session.TranscriptPosition, error)
	// TranscriptContent reads what a position describes in pieces of at most 1 MiB, each valid until the next.
	TranscriptContent(ctx context.Context, sessionID string, p session.TranscriptPosition) iter.Seq2[[]byte, error]
	// TranscriptGap counts that a turn has failed because a segment left a gap, and returns how often it has.
	TranscriptGap(ctx context.Context, sessionID, runID string) (int, error)
	// TranscriptLimitsReached returns the limits that kept transcripts from being stored whole.
	TranscriptLimitsReached(ctx context.Context, sessionID string) ([]session.TranscriptLimit, error)

	// FilesAppend stores what has happened in a workspace, with its events; what is stored already is
	// skipped. eventlog.ErrFenced when a newer generation or attempt has taken over.
	FilesAppend(ctx context.Context, b session.FilesBatch) error
	// FilesTold returns what the log has of the changes of a workspace in a run.
	FilesTold(ctx context.Context, sessionID, runID string) (session.FilesTold, error)
	// FilesPosition says how much of what has happened in a workspace is stored.
	FilesPosition(ctx context.Context, sessionID string) (session.FilesPosition, error)
	// FilesKnown are the files that are stored, for a runner that does not know.
	FilesKnown(ctx context.Context, sessionID string) ([]session.KnownFile, error)

	// ImageIntend records that an image is about to be made.
	ImageIntend(ctx context.Context, intent session.ImageIntent) error
	// ImageIntentEnd forgets an intent that failed.
	ImageIntentEnd(ctx context.Context, intentID string) error
	// ImageIntentsForget forgets intents older than age.
	ImageIntentsForget(ctx context.Context, age time.Duration) (int64, error)
	// SnapshotMade stores the image that came of an intent, before anything depends on it.
	SnapshotMade(ctx context.Context, intent session.ImageIntent, snapshotID string) error
	// SnapshotRecord is SnapshotMade for an image that had no intent.
	SnapshotRecord(ctx context.Context, sessionID string, generation int64, snapshotID string) error
	// SnapshotsAge marks snapshots older than age that no bundle was made of as unneeded.
	SnapshotsAge(ctx context.Context, age time.Duration) error
	// SnapshotsAudit checks kept snapshots after an id for marks that were missed, and
	// returns where to continue; "" at the end.
	SnapshotsAudit(ctx context.Context, after string, limit int) (next string, err error)
	// SnapshotsCondemn returns unneeded snapshots to delete, of which no bundle can be
	// made any more. One that is not forgotten is returned again after a growing pause.
	SnapshotsCondemn(ctx context.Context, limit int) ([]string, error)
	// SnapshotsForget records that images are deleted at the provider.
	SnapshotsForget(ctx context.Context, ids []string) error
	// SnapshotsRenew returns snapshots that sleeping sessions wake from and that their
	// provider deletes within the time.
	SnapshotsRenew(ctx context.Context, within time.Duration, limit int) ([]session.Renewal, error)
	// SnapshotReplace has a session wake from a copy of its snapshot, unless it has moved on.
	SnapshotReplace(ctx context.Context, intent session.ImageIntent, oldID, newID string) error
	// ExitImageExpect has the image of an ended sandbox looked for that no row names.
	ExitImageExpect(ctx context.Context, e session.ExitImage) error
	// ExitImagesDue returns ended sandboxes whose image is to be found. One that is
	// not settled is returned again after a growing pause.
	ExitImagesDue(ctx context.Context, limit int) ([]session.ExitImage, error)
	// ExitImagesSettle stores what was found. Images without a bundle are unneeded.
	ExitImagesSettle(ctx context.Context, found []session.ExitImage) error
	// ImagesStray condemns listed images that nothing knows of, and returns how many.
	ImagesStray(ctx context.Context, listed []session.ListedImage, age time.Duration) (int, error)
	// BaseImagesCondemn returns base images that nothing uses, last used before age.
	BaseImagesCondemn(ctx context.Context, age time.Duration, limit int) ([]string, error)
	// BaseImagesForget records that base images are deleted at the provider.
	BaseImagesForget(ctx context.Context, ids []string) error
	// BundleCommit stores a bundle and makes it the session's head.
	BundleCommit(ctx context.Context, b session.Bundle) error
	// BundleHead returns the bundle to wake from; bundle_not_found when there is none.
	BundleHead(ctx context.Context, sessionID string) (session.Bundle, error)
	// BundleProve records that a restore has matched the bundle's manifest.
	BundleProve(ctx context.Context, bundleID string) error

	// BundlesRestorable lists older bundles of a session whose snapshot is kept and is not snapshotID,
	// newest first.
	BundlesRestorable(ctx context.Context, sessionID, snapshotID string) ([]session.Bundle, error)
	// SnapshotKeep puts off the deletion of a snapshot that could not be restored.
	SnapshotKeep(ctx context.Context, snapshotID string, age time.Duration) error
	// ImagesKnown lists other images that this installation has made and that should exist at the provider.
	ImagesKnown(ctx context.Context, except string) ([]string, error)

	// Attended lists, a page at a time in order of ids, loaded sessions that have something to do,
	// with an open run that has been silent for as long as quiet.
	Attended(ctx context.Context, after string, quiet time.Duration, limit int) ([]session.Attended, error)

	// Installation is the id of this database's installation, for tags at the provider.
	Installation(ctx context.Context) (string, error)
}

// Changes signals when something has been written about a session, such as an answer.
type Changes interface {
	// Watch returns a channel that is sent to when the session's log has grown. It may miss one.
	Watch(sessionID string) (changed <-chan struct{}, stop func())
}

// Log is where the events of runs go.
type Log interface {
	// Append returns when the events are committed. eventlog.ErrFenced means that
	// a newer generation or attempt has taken over and nothing was written.
	Append(ctx context.Context, a eventlog.Append) error
	// Position is the newest seq of a session; 0 before the first event.
	Position(ctx context.Context, sessionID string) (int64, error)
}
