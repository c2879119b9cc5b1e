package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// keyLife is how long an idempotency key is valid.
const keyLife = 24 * time.Hour

// SessionCreate stores a session with the status initializing, and its first prompt, if any. With a
// key that was used within the last 24 hours it returns the session created then in its current
// state, with created false, or idempotency_conflict if the digest differs. The store sets the
// status, counters and all times except CreatedAt.
func (db *DB) SessionCreate(ctx context.Context, s session.Session, first *session.Prompt, idem session.Idempotency) (stored session.Session, created bool, err error) {
	const doing = "create a session"
	if first != nil && len(first.Attachments) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = db.bulk(ctx)
		defer cancel()
	}
	err = db.inTx(ctx, doing, pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		if idem.Key != "" {
			earlier, err := db.keyTake(ctx, tx, idem, s.ID, at)
			if err != nil {
				return err
			}
			if earlier != "" {
				stored, err = db.sessionIn(ctx, tx, earlier)
				return err
			}
		}
		if idem.Refusal != nil {
			return idem.Refusal
		}
		if err := db.sessionInsert(ctx, tx, s, at); err != nil {
			return err
		}
		if first != nil {
			if err := db.promptFirst(ctx, tx, s.ID, *first, at); err != nil {
				return err
			}
		}
		created = true
		stored, err = db.sessionIn(ctx, tx, s.ID)
		return err
	})
	if err != nil {
		return session.Session{}, false, err
	}
	return stored, created, nil
}

// keyTake assigns the key to the session or returns the session that has it. It waits for a
// concurrent create with the same key.
func (db *DB) keyTake(ctx context.Context, tx dbsqlc.DBTX, idem session.Idempotency, sessionID string, at time.Time) (earlier string, err error) {
	if err := db.q.IdempotencyPurge(ctx, tx, at.Add(-keyLife)); err != nil {
		return "", err
	}
	taken, err := db.q.IdempotencyInsert(ctx, tx, &dbsqlc.IdempotencyInsertParams{
		Key: idem.Key, Digest: idem.Digest, SessionID: sessionID, CreatedAt: at,
	})
	if err != nil || taken == 1 {
		return "", err
	}
	row, err := db.q.IdempotencyGet(ctx, tx, idem.Key)
	if err != nil {
		return "", err
	}
	if row.Digest != idem.Digest {
		return "", failure.Errorf(failure.Idempotency, "the idempotency key was used for another request")
	}
	return row.SessionID, nil
}

func (db *DB) sessionInsert(ctx context.Context, tx pgx.Tx, s session.Session, at time.Time) error {
	if s.CreatedAt.IsZero() {
		s.CreatedAt = at
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = session.DefaultIdleTimeout
	}
	if len(s.Metadata) == 0 {
		s.Metadata = json.RawMessage(`{}`)
	}
	options, err := json.Marshal(s.Options)
	if err != nil {
		return fmt.Errorf("options of a session: %w", err)
	}
	var workspace []byte
	if s.Workspace != nil {
		if workspace, err = json.Marshal(s.Workspace); err != nil {
			return fmt.Errorf("workspace of a session: %w", err)
		}
	}
	inserted, err := db.q.SessionInsert(ctx, tx, &dbsqlc.SessionInsertParams{
		ID: s.ID, Agent: s.Agent, Profile: s.Profile, Title: s.Title, Workspace: workspace,
		ParentID: s.ParentID, ForkedFrom: s.ForkedFrom, Lazy: s.Lazy, CreatedAt: s.CreatedAt.UTC(),
		IdleTimeoutNs: int64(s.IdleTimeout), Metadata: s.Metadata, Options: options,
	})
	if err == nil && inserted == 0 {
		return illegal("session %s was deleted; its id is not used again", s.ID)
	}
	return err
}

// promptFirst queues the first prompt of a session that is created in the same transaction.
func (db *DB) promptFirst(ctx context.Context, tx pgx.Tx, sessionID string, p session.Prompt, at time.Time) error {
	row, err := db.q.SessionLock(ctx, tx, sessionID)
	if err != nil {
		return err
	}
	s := &sessionTx{Conn: tx.Conn(), q: db.q, row: row, now: at}
	p.SessionID = sessionID
	if _, err := s.promptInsert(ctx, p, nil, false); err != nil {
		return err
	}
	return s.flush(ctx)
}

// SessionGet returns a session.
func (db *DB) SessionGet(ctx context.Context, sessionID string) (session.Session, error) {
	var s session.Session
	err := db.inOneTrip(ctx, func(in *lookups) error {
		one := []session.Session{{ID: sessionID}}
		var getErr error
		if s, getErr = db.sessionGet(ctx, in, sessionID); getErr == nil {
			one[0] = s
		}
		headErr := db.headsInto(ctx, in, one)
		s = one[0]
		return cmp.Or(getErr, headErr)
	})
	if err == nil && (s.Status.Final() || len(s.Pending) > 0) { // a purge begins by stopping the session
		s.Purge, err = db.purgeGet(ctx, db.pool, sessionID)
	}
	if err == nil && s.Starts() {
		err = db.startWaits(ctx, db.pool, []*session.Session{&s})
	}
	return s, fault("read a session", err)
}

// SessionNeeds returns the agent of a session, the reference to its profile, if it has one, and the
// names for which a secret is stored.
func (db *DB) SessionNeeds(ctx context.Context, sessionID string, names []string) (agentName, profileRef string, present []string, err error) {
	if names == nil {
		names = []string{}
	}
	row, err := db.q.SessionNeeds(ctx, db.pool, &dbsqlc.SessionNeedsParams{ID: sessionID, Names: names})
	if isNoRows(err) {
		return "", "", nil, noSession(sessionID)
	}
	return row.Agent, row.Profile, row.Present, fault("read the needs of a session's agent", err)
}

// sessionGet reads a session with its pending commands.
func (db *DB) sessionGet(ctx context.Context, tx dbsqlc.DBTX, sessionID string) (session.Session, error) {
	// Commands first: if a stop ends between the two reads, either it is still pending or the
	// session is terminated.
	rows, rowsErr := db.q.CommandsPending(ctx, tx, sessionID)
	if rowsErr != nil && !errors.Is(rowsErr, errCollected) {
		return session.Session{}, rowsErr
	}
	s, err := db.sessionGetBare(ctx, tx, sessionID)
	if err == nil && !s.Status.Final() {
		s.Pending = commandsOf(rows)
	}
	return s, cmp.Or(rowsErr, err)
}

// sessionIn is sessionGet in a transaction that has not locked the session, with the plans of
// inOneTrip.
func (db *DB) sessionIn(ctx context.Context, tx pgx.Tx, sessionID string) (s session.Session, err error) {
	var in lookups
	err = in.send(ctx, tx.Conn(), []string{genericPlans}, func(in *lookups) (err error) {
		s, err = db.sessionGet(ctx, in, sessionID)
		return err
	})
	return s, err
}

// sessionGetBare reads a session without its commands.
func (db *DB) sessionGetBare(ctx context.Context, tx dbsqlc.DBTX, sessionID string) (session.Session, error) {
	row, err := db.q.SessionGet(ctx, tx, sessionID)
	if isNoRows(err) {
		return session.Session{}, noSession(sessionID)
	}
	if err != nil {
		return session.Session{}, err
	}
	return sessionOf(row)
}

// commandsInto adds the pending commands to the sessions of a list.
func (db *DB) commandsInto(ctx context.Context, tx dbsqlc.DBTX, items []session.Session) error {
	at := make(map[string]int, len(items))
	ids := make([]string, len(items))
	for i, s := range items {
		ids[i], at[s.ID] = s.ID, i
	}
	rows, err := db.q.CommandsPendingOf(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, row := range rows {
		s := &items[at[row.SessionID]]
		s.Pending = append(s.Pending, commandOf(row))
	}
	return nil
}

// SessionPatch applies the given changes, and appends a title event for a new title and a settings
// event for other changes. A terminated session may be renamed, but its log is closed. It returns
// workspace_in_use or session_terminated if the workspace can no longer be changed.
func (db *DB) SessionPatch(ctx context.Context, sessionID string, p session.Patch) (patched session.Session, err error) {
	err = db.inSession(ctx, "change a session", sessionID, func(s *sessionTx) error {
		before, err := db.sessionGetBare(ctx, s, sessionID)
		if err != nil {
			return err
		}
		params := &dbsqlc.SessionPatchParams{ID: sessionID, Title: p.Title, Metadata: p.Metadata}
		if p.IdleTimeout != nil {
			params.IdleTimeoutNs = new(int64(*p.IdleTimeout))
		}
		if p.Options != nil {
			if params.Options, err = json.Marshal(p.Options); err != nil {
				return fmt.Errorf("options of a session: %w", err)
			}
		}
		params.Profile = p.Profile
		if p.Workspace != nil {
			if err := s.patchWorkspace(ctx, params, *p.Workspace); err != nil {
				return err
			}
		}
		if err := s.q.SessionPatch(ctx, s, params); err != nil {
			return err
		}
		if p.Title != nil && *p.Title != s.row.Title {
			if err := s.add(string(conversation.EventTitle), "", conversation.Title{Title: *p.Title}); err != nil {
				return err
			}
		}
		notify, err := s.signalFor(ctx, p.IdleTimeout != nil)
		if err != nil {
			return err
		}
		if patched, err = db.sessionGet(ctx, s, sessionID); err != nil {
			return err
		}
		patched.Notify = notify
		if data, changed := event.Settings(before, patched); changed {
			return s.add(event.TypeSettings, "", data)
		}
		return nil
	})
	return patched, err
}

// patchWorkspace changes the workspace if the state of the session allows it.
func (s *sessionTx) patchWorkspace(ctx context.Context, params *dbsqlc.SessionPatchParams, ws session.Workspace) error {
	if refused := session.JudgeWorkspace(session.State(s.row.Status), s.row.Generation); refused != nil {
		return refused
	}
	params.WorkspaceGiven = true
	if ws != (session.Workspace{}) {
		var err error
		if params.Workspace, err = json.Marshal(ws); err != nil {
			return fmt.Errorf("workspace of a session: %w", err)
		}
	}
	return s.q.SandboxesWorkspaceChanged(ctx, s, s.row.ID)
}

// SessionOpen marks the session as loaded, records that the workflow run has read the pending work,
// and returns the state that a workflow needs. It gives an open run a new dispatch, since the new
// workflow run continues it. From then on the session accepts writes of this workflow run only. If
// the session has been purged (a process that was frozen has signalled the workflow), the purge
// erases this workflow, too.
func (db *DB) SessionOpen(ctx context.Context, sessionID, workflowRunID string) (loaded session.Loaded, err error) {
	ctx = session.WithWorkflowRun(ctx, "") // any workflow run may open it
	err = db.inSession(ctx, "open a session", sessionID, func(s *sessionTx) error {
		err := s.q.SessionSetWorkflowRun(ctx, &s.later, &dbsqlc.SessionSetWorkflowRunParams{ID: sessionID, WorkflowRun: workflowRunID})
		if err != nil {
			return err
		}
		if err := s.q.SessionSetLoaded(ctx, s, &dbsqlc.SessionSetLoadedParams{ID: sessionID, Loaded: true}); err != nil {
			return err
		}
		if err := s.recordRead(ctx, workflowRunID); err != nil {
			return err
		}
		if loaded.Session, err = db.sessionGet(ctx, s, sessionID); err != nil {
			return err
		}
		opened, err := s.q.SessionOpened(ctx, s, sessionID)
		if err != nil {
			return err
		}
		loaded.ErrorCause, loaded.GivenTitle = session.ErrorCause(opened.ErrorCause), opened.GivenTitle
		if err := s.loadQueue(ctx, &loaded); err != nil {
			return err
		}
		head, err := s.q.BundleGetHead(ctx, s, sessionID)
		switch {
		case err == nil:
			loaded.Head = &session.BundleRef{ID: head.ID, SnapshotID: head.SnapshotID}
		case !isNoRows(err):
			return err
		}
		sb, err := s.q.SandboxGet(ctx, s, &dbsqlc.SandboxGetParams{SessionID: sessionID, Generation: s.row.Generation})
		switch {
		case err == nil && sb.EndedAt == nil:
			loaded.SandboxID, loaded.SandboxSince, loaded.Deadline = sb.SandboxID, sb.ReservedAt.UTC(), orZero(sb.Deadline)
		case err != nil && !isNoRows(err):
			return err
		}
		return nil
	})
	if failure.CodeOf(err) == failure.NoSession {
		if resumeErr := db.q.PurgeResume(ctx, db.pool, sessionID); resumeErr != nil {
			return loaded, fault("resume a purge", resumeErr)
		}
	}
	return loaded, err
}

func (s *sessionTx) loadQueue(ctx context.Context, loaded *session.Loaded) error {
	unfinished, err := s.q.PromptUnfinished(ctx, s, s.row.ID)
	if err != nil {
		return err
	}
	for _, p := range unfinished {
		if p.Status == string(session.PromptQueued) {
			if !s.held() {
				loaded.Waiting = append(loaded.Waiting, session.QueuedPrompt{ID: p.ID, Ordinal: p.Ordinal, Rank: p.Rank})
			}
			continue
		}
		run, err := s.q.RunDispatch(ctx, s, p.RunID)
		if err != nil {
			return err
		}
		loaded.Processing = processingOf(run, p.Ordinal, p.OnUnknown)
		if run.ParkedAt != nil {
			if err := s.parkedInto(ctx, run.ID, run.Part+1, loaded.Processing); err != nil {
				return err
			}
		}
	}
	return nil
}

// processingOf returns a run in progress in its workflow's form, given columns of its prompt.
func processingOf(run dbsqlc.Run, ordinal int64, onUnknown string) *session.Processing {
	return &session.Processing{
		PromptID: run.PromptID, Ordinal: ordinal, RunID: run.ID, Generation: run.Generation, Dispatch: run.Dispatch,
		OnUnknown: session.OnUnknown(onUnknown), Part: run.Part,
	}
}

// SessionClose marks the session as not loaded: its workflow is about to complete.
func (db *DB) SessionClose(ctx context.Context, sessionID string) error {
	return db.inSession(ctx, "close a session", sessionID, func(s *sessionTx) error {
		return s.q.SessionSetLoaded(ctx, s, &dbsqlc.SessionSetLoadedParams{ID: sessionID, Loaded: false})
	})
}

// sandboxOf returns the present sandbox of a session; nil if it has none.
func sandboxOf(row dbsqlc.SessionView) *session.SandboxView {
	if row.SandboxID == "" {
		return nil
	}
	return &session.SandboxView{
		SandboxID: row.SandboxID, Status: session.SandboxStatus(row.SandboxStatus),
		// Each generation after the first replaced another.
		RestartCount: max(0, row.Generation-1), LastHealthCheck: row.SandboxSeenAt.UTC(),
		Since: orZero(row.SandboxSince), Deadline: orZero(row.SandboxDeadline),
	}
}

func sessionOf(row dbsqlc.SessionView) (session.Session, error) {
	s := session.Session{
		ID: row.ID, Status: session.State(row.Status), StatusReason: row.StatusReason,
		Agent: row.Agent, Profile: row.Profile, Title: row.Title, ParentID: row.ParentID, ForkedFrom: row.ForkedFrom,
		Lazy: row.Lazy, CreatedAt: row.CreatedAt.UTC(), LastActivity: row.LastActivityAt.UTC(),
		IdleTimeout: time.Duration(row.IdleTimeoutNs), Metadata: row.Metadata,
		Generation: row.Generation, TransitionNo: row.TransitionNo,
		Metrics: session.Metrics{
			ActiveSeconds: row.ActiveSeconds, Messages: row.Messages, ToolCalls: row.ToolCalls,
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, CostUSD: row.CostUsd,
		},
		Queue:  session.QueueCounts{Queued: row.Queued, Processing: row.Processing, Unknown: row.Unresolved, Hold: session.QueueHold{Since: orZero(row.HeldAt), Reason: row.HeldReason}},
		Loaded: row.Loaded, QuestionsOpen: row.QuestionsOpen, Step: row.Step,
	}
	if !row.CostKnown {
		s.Metrics.CostUSD = nil
	}
	if row.RunningSince != nil { // the current period, which the next transition adds
		s.Metrics.ActiveSeconds += max(0, time.Since(*row.RunningSince).Seconds())
	}
	s.Sandbox = sandboxOf(row)
	if err := json.Unmarshal(row.Options, &s.Options); err != nil {
		return session.Session{}, fmt.Errorf("options of session %s: %w", row.ID, err)
	}
	if row.Workspace != nil {
		if err := json.Unmarshal(row.Workspace, &s.Workspace); err != nil {
			return session.Session{}, fmt.Errorf("workspace of session %s: %w", row.ID, err)
		}
	}
	var err error
	s.Receipt, err = receiptOf(row.Receipt)
	if err != nil {
		return session.Session{}, fmt.Errorf("receipt of session %s: %w", row.ID, err)
	}
	return s, nil
}
