package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptSubmit stores a prompt at the end of its session's queue with the events prompt and queue.
// A prompt of the mode collect is collected for CollectFor; the returned prompt has the remaining
// time. Submitting the same id and body again returns the stored prompt, with created false,
// regardless of the state of the session; a different body is prompt_conflict. Other errors:
// session_not_found, session_terminated, session_in_error, queue_full. Position is the number of
// queued prompts up to and including this one; 0 once it has left the queue.
func (db *DB) PromptSubmit(ctx context.Context, p session.Prompt) (stored session.Prompt, position int64, created bool, err error) {
	return db.promptSubmit(ctx, p, nil)
}

// PromptSubmitIf is PromptSubmit that stores a new prompt only if the needs are met; otherwise the error
// is session.ErrUnmet.
func (db *DB) PromptSubmitIf(ctx context.Context, p session.Prompt, needs session.Needs) (stored session.Prompt, position int64, created bool, err error) {
	return db.promptSubmit(ctx, p, &needs)
}

func (db *DB) promptSubmit(ctx context.Context, p session.Prompt, needs *session.Needs) (stored session.Prompt, position int64, created bool, err error) {
	var have dbsqlc.Prompt
	var exists bool
	var open dbsqlc.Run // zero if there is none
	var head []dbsqlc.PromptHeadRow
	met := true
	read := func(in *lookups) error {
		var haveErr, openErr, headErr, needsErr error
		have, haveErr = db.q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: p.SessionID, ID: p.ID})
		if exists = haveErr == nil; isNoRows(haveErr) {
			haveErr = nil
		}
		if open, openErr = db.q.RunGetOpen(ctx, in, p.SessionID); isNoRows(openErr) {
			openErr = nil
		}
		head, headErr = promptHead(ctx, db.q, in, p.SessionID)
		if needs != nil {
			var row dbsqlc.SessionNeedsRow
			row, needsErr = db.q.SessionNeeds(ctx, in, &dbsqlc.SessionNeedsParams{ID: p.SessionID, Names: needs.Names})
			met = needsErr == nil && needs.Met(row.Agent, row.Present)
			if isNoRows(needsErr) { // no session, which the lock reports
				needsErr = nil
			}
		}
		return cmp.Or(haveErr, openErr, headErr, needsErr)
	}
	if len(p.Attachments) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = db.bulk(ctx)
		defer cancel()
	}
	err = db.inSessionWith(ctx, "submit a prompt", p.SessionID, read, func(s *sessionTx) error {
		if !exists && !met {
			return session.ErrUnmet
		}
		if !exists {
			stored, created = session.Prompt{}, true
			queue := headOf(head)
			if stored, err = s.promptSubmit(ctx, p, head, open.ID == "" && !s.held() && s.shouldSignal()); err != nil {
				return err
			}
			if position = queue.Queued + 1; p.Mode == session.Steer {
				position = int64(steersIn(head)) + 1
				stored.Interrupts, err = s.steer(ctx, stored, open, head)
			}
			return err
		}
		stored = blocked(promptOf(have), s.row.Status, s.row.StatusReason)
		want := withDefaults(p)
		if !submittedAs(have, want) || !sameAttachments(stored, want) {
			return failure.Errorf(failure.PromptExists, "prompt %s was submitted with another body", p.ID)
		}
		position, err = s.q.PromptPosition(ctx, s, &dbsqlc.PromptPositionParams{SessionID: p.SessionID, ID: p.ID})
		if err != nil {
			return err
		}
		// Also for a repeated submit: the first signal may have been lost.
		if stored.Status == session.PromptQueued {
			stored.CollectFor = max(0, stored.CollectUntil.Sub(s.now))
		}
		stored.Notify, err = s.signalFor(ctx, stored.Status == session.PromptQueued && stored.CollectFor == 0 && !s.held())
		return err
	})
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	return stored, position, created, nil
}

func (s *sessionTx) promptSubmit(ctx context.Context, p session.Prompt, head []dbsqlc.PromptHeadRow, notify bool) (session.Prompt, error) {
	if session.State(s.row.Status).Final() {
		return session.Prompt{}, failure.Errorf(failure.Terminated, "the session is terminated")
	}
	if session.State(s.row.Status) == session.Error {
		return session.Prompt{}, session.InError(s.row.StatusReason)
	}
	if queued := headOf(head).Queued; queued >= session.MaxQueued {
		return session.Prompt{}, failure.Errorf(failure.QueueFull, "%d prompts of the session are waiting, which is the limit; send the prompt again when some have ended, or clear the queue", queued)
	}
	return s.promptInsert(ctx, p, head, notify)
}

// promptInsert queues a new prompt in a queue whose head is given. With notify the session counts
// as signalled, unless it has an attendant: its workflow is signalled later, so that a command
// submitted meanwhile gets its own signal.
func (s *sessionTx) promptInsert(ctx context.Context, p session.Prompt, head []dbsqlc.PromptHeadRow, notify bool) (session.Prompt, error) {
	p = withDefaults(p)
	at, closed, err := s.placeOf(ctx, p, head)
	if err != nil {
		return session.Prompt{}, err
	}
	p.JoinedTo, p.Rank, p.CollectUntil, p.CollectFor = at.joined, at.rank, orZero(at.until), 0
	if at.until != nil {
		p.CollectFor = at.until.Sub(s.now)
		notify = notify && closed // only the prompts before it, whose collection has ended, can start
	}
	s.row.LastOrdinal++
	p.Ordinal, p.Status = s.row.LastOrdinal, session.PromptQueued
	p.CreatedAt = s.now // follows the order of ordinals, across processes
	p.AllottedRun = session.NewID(session.RunPrefix)
	p.Attended = notify && s.row.Attendant != ""
	p.Notify = notify && !p.Attended
	attachments, err := s.attachmentsPut(ctx, p.Attachments)
	if err != nil {
		return session.Prompt{}, err
	}
	err = s.q.PromptInsert(ctx, &s.later, &dbsqlc.PromptInsertParams{
		SessionID: p.SessionID, ID: p.ID, Ordinal: p.Ordinal, Content: p.Content, Mode: string(p.Mode),
		OnUnknown: string(p.OnUnknown), Author: p.Author, Depth: int32(p.Depth), CreatedAt: p.CreatedAt.UTC(), RequestID: p.RequestID, TraceParent: p.TraceParent,
		Attachments: attachments, Rank: p.Rank, JoinedTo: p.JoinedTo, CollectUntil: at.until,
		AllottedRunID: p.AllottedRun, BaseSessionID: p.BaseSession, BaseBundleID: p.BaseBundle,
	})
	if err != nil {
		return session.Prompt{}, err
	}
	if err := s.add(event.TypePrompt, "", event.PromptSubmitted(p)); err != nil {
		return session.Prompt{}, err
	}
	queue, item := headOf(head), event.QueueItem{PromptID: p.ID, Ordinal: p.Ordinal, Rank: p.Rank, Status: p.Status}
	queue.Queued++
	before := slices.IndexFunc(queue.Items, func(i event.QueueItem) bool { return i.Status == session.PromptQueued && i.Rank > p.Rank })
	if before < 0 {
		before = len(queue.Items)
	}
	queue.Items = slices.Insert(queue.Items, before, item)
	if err := s.addQueue(queue, queueChange(event.QueueAdded, item)); err != nil {
		return session.Prompt{}, err
	}
	if p.Ordinal == 1 {
		if err := s.titleFrom(ctx, p.Content); err != nil {
			return session.Prompt{}, err
		}
	}
	s.advanced = s.row.LastSeq
	return p, s.q.SessionSubmitted(ctx, &s.later, &dbsqlc.SessionSubmittedParams{
		ID: p.SessionID, LastOrdinal: p.Ordinal, LastSeq: s.row.LastSeq, At: s.now, IsSignalled: p.Notify,
	})
}

func withDefaults(p session.Prompt) session.Prompt {
	if p.Mode == "" {
		p.Mode = session.Followup
	}
	if p.OnUnknown == "" {
		p.OnUnknown = session.Hold
	}
	return p
}

// blocked adds to a prompt what prevents it from running: the error of its session.
func blocked(p session.Prompt, status, reason string) session.Prompt {
	if p.Status == session.PromptQueued && session.State(status) == session.Error {
		p.BlockedReason = cmp.Or(reason, "the session is in error")
	}
	return p
}

// maxBlockedReported bounds the prompts that are reported when a session enters or leaves the
// status error. The others are only visible in the API.
const maxBlockedReported = 100

// reportBlocked appends an event for each of the first queued prompts, which are now blocked or no
// longer blocked.
func (s *sessionTx) reportBlocked(ctx context.Context, status session.State, reason string) error {
	rows, err := s.q.PromptsBlocked(ctx, s, &dbsqlc.PromptsBlockedParams{SessionID: s.row.ID, MaxItems: maxBlockedReported})
	if err != nil {
		return err
	}
	for _, row := range rows {
		p := session.Prompt{
			ID: row.ID, SessionID: s.row.ID, Ordinal: row.Ordinal, Rank: row.Rank, Status: session.PromptQueued, Mode: session.Mode(row.Mode),
			OnUnknown: session.OnUnknown(row.OnUnknown), Author: row.Author, Depth: int64(row.Depth), Reason: row.Reason, CreatedAt: row.CreatedAt.UTC(), RequestID: row.RequestID,
			JoinedTo: row.JoinedTo, AllottedRun: row.AllottedRunID,
		}
		if err := s.add(event.TypePrompt, "", event.PromptChanged(blocked(p, string(status), reason))); err != nil {
			return err
		}
	}
	return nil
}

// addPrompt appends the event of a changed prompt.
func (s *sessionTx) addPrompt(row dbsqlc.Prompt) error {
	return s.add(event.TypePrompt, row.RunID, event.PromptChanged(blocked(promptOf(row), s.row.Status, s.row.StatusReason)))
}

func queueChange(kind event.QueueChangeKind, item event.QueueItem) event.QueueChange {
	return event.QueueChange{Change: kind, QueueItem: item}
}

func itemOf(row dbsqlc.Prompt) event.QueueItem {
	return event.QueueItem{PromptID: row.ID, Ordinal: row.Ordinal, Rank: row.Rank, Status: session.PromptStatus(row.Status)}
}

// reportQueue appends a queue event with the changes and the head of the queue: its size does not
// depend on the length of the queue.
func (s *sessionTx) reportQueue(ctx context.Context, changes ...event.QueueChange) error {
	head, err := promptHead(ctx, s.q, s, s.row.ID)
	if err != nil {
		return err
	}
	return s.addQueue(headOf(head), changes...)
}

// promptHead reads the head of a queue before the changes of a transaction. It reads one item more
// than an event contains, because one may leave the queue.
func promptHead(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, sessionID string) ([]dbsqlc.PromptHeadRow, error) {
	return q.PromptHead(ctx, tx, &dbsqlc.PromptHeadParams{SessionID: sessionID, MaxItems: event.MaxQueueItems + 1})
}

func headOf(rows []dbsqlc.PromptHeadRow) event.QueueData {
	queue := event.QueueData{Items: make([]event.QueueItem, len(rows))}
	for i, p := range rows {
		queue.Items[i] = event.QueueItem{PromptID: p.ID, Ordinal: p.Ordinal, Rank: p.Rank, Status: session.PromptStatus(p.Status)}
		queue.Queued, queue.Processing = p.Queued, p.Processing
	}
	return queue
}

// addQueue appends a queue event with the queue after the changes.
func (s *sessionTx) addQueue(queue event.QueueData, changes ...event.QueueChange) error {
	queue.Changes, queue.Items = changes, queue.Items[:min(len(queue.Items), event.MaxQueueItems)]
	queue.HoldJSON = resource.Hold(s.hold())
	return s.add(event.TypeQueue, "", queue)
}

// PromptGet returns a prompt. Errors: session_not_found, prompt_not_found.
func (db *DB) PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error) {
	const doing = "read a prompt"
	var row dbsqlc.Prompt
	err := db.inOneTrip(ctx, func(in *lookups) (err error) {
		row, err = db.q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: sessionID, ID: promptID})
		return err
	})
	if isNoRows(err) {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return session.Prompt{}, err
		}
		return session.Prompt{}, noPrompt(promptID)
	}
	if err != nil {
		return session.Prompt{}, fault(doing, err)
	}
	p := promptOf(row)
	if err := db.promptsUsage(ctx, []session.Prompt{p}, func(_ int, u session.PromptUsage) { p.Usage = &u }); err != nil {
		return session.Prompt{}, fault(doing, err)
	}
	if p.Status == session.PromptQueued {
		owner, err := db.SessionGet(ctx, sessionID)
		if err != nil {
			return session.Prompt{}, err
		}
		p = blocked(p, string(owner.Status), owner.StatusReason)
	}
	return p, nil
}

// PromptAfter returns the position in the session's log after which the turn of a prompt begins:
// just before its first run, or at the newest event if it has had no run.
func (db *DB) PromptAfter(ctx context.Context, sessionID, promptID string) (int64, error) {
	row, err := db.q.PromptTurn(ctx, db.pool, &dbsqlc.PromptTurnParams{SessionID: sessionID, ID: promptID})
	switch {
	case isNoRows(err):
		return 0, noPrompt(promptID)
	case err != nil:
		return 0, fault("find the turn of a prompt", err)
	case row.BeganSeq > 0:
		return row.BeganSeq - 1, nil
	}
	return row.LastSeq, nil
}

// PromptsPending returns at most limit unfinished prompts: the one that is processing, and then the
// queued ones.
func (db *DB) PromptsPending(ctx context.Context, sessionID string, limit int) ([]string, error) {
	ids, err := db.q.PromptsPending(ctx, db.pool, &dbsqlc.PromptsPendingParams{SessionID: sessionID, MaxItems: int32(limit)})
	if err == nil && len(ids) == 0 {
		_, err := db.SessionGet(ctx, sessionID)
		return nil, err
	}
	return ids, fault("list the prompts that are not over", err)
}

// PromptList returns a page of a session's prompts, oldest first, and the cursor of the next page,
// which is empty for the last page. A page ends at limit prompts or maxPageBytes.
func (db *DB) PromptList(ctx context.Context, sessionID string, limit int, cursor string) (items []session.Prompt, nextCursor string, err error) {
	limit = pageLimit(limit)
	var after promptCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &after); err != nil {
			return nil, "", err
		}
	}
	owner, err := db.SessionGet(ctx, sessionID)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.q.PromptList(ctx, db.pool, &dbsqlc.PromptListParams{
		SessionID: sessionID, AfterOrdinal: after.Ordinal, MaxItems: int32(limit) + 1, MaxBytes: maxPageBytes,
	})
	if err != nil {
		return nil, "", fault("list prompts", err)
	}
	bytes := 0
	for i, row := range rows {
		if bytes += len(row.Content) + len(row.Attachments); i+1 == limit && len(rows) > limit || bytes >= maxPageBytes {
			rows, nextCursor = rows[:i+1], cursorEncode(promptCursor{Ordinal: row.Ordinal})
			break
		}
	}
	items = make([]session.Prompt, len(rows))
	for i, row := range rows {
		items[i] = blocked(promptOf(row), string(owner.Status), owner.StatusReason)
	}
	if err := db.promptsUsage(ctx, items, func(i int, u session.PromptUsage) { items[i].Usage = &u }); err != nil {
		return nil, "", fault("list prompts", err)
	}
	return items, nextCursor, nil
}

// promptsUsage calls set with the usage of the last run of each prompt whose run has ended.
func (db *DB) promptsUsage(ctx context.Context, prompts []session.Prompt, set func(i int, u session.PromptUsage)) error {
	var ids []string
	for _, p := range prompts {
		if p.RunID != "" && p.JoinedTo == "" {
			ids = append(ids, p.RunID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var rows []dbsqlc.RunsUsageRow
	err := db.inOneTrip(ctx, func(in *lookups) (err error) {
		rows, err = db.q.RunsUsage(ctx, in, ids)
		return err
	})
	if err != nil {
		return err
	}
	used := make(map[string]session.PromptUsage, len(rows))
	for _, row := range rows {
		used[row.ID] = session.PromptUsage{Model: row.Model, Usage: usageOf(dbsqlc.Run{
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, ToolCalls: row.ToolCalls, CostUsd: row.CostUsd,
		})}
	}
	for i, p := range prompts {
		if u, ok := used[p.RunID]; ok && p.JoinedTo == "" {
			set(i, u)
		}
	}
	return nil
}

// PromptWithdraw cancels a queued prompt; prompt_not_queued if it is no longer queued. Prompts
// joined to it stay in the queue, joined to the first of them.
func (db *DB) PromptWithdraw(ctx context.Context, sessionID, promptID string) (withdrawn session.Prompt, err error) {
	err = db.inSession(ctx, "withdraw a prompt", sessionID, func(s *sessionTx) error {
		if _, err := s.queued(ctx, promptID); err != nil {
			return err
		}
		p, err := s.q.PromptEnd(ctx, s, &dbsqlc.PromptEndParams{
			SessionID: sessionID, ID: promptID, Status: string(session.PromptCancelled), Reason: session.ReasonWithdrawn, At: s.now,
		})
		if err != nil {
			return err
		}
		withdrawn = promptOf(p)
		if err := s.addPrompt(p); err != nil {
			return err
		}
		changes, err := s.rejoin(ctx, p)
		if err != nil {
			return err
		}
		return s.reportQueue(ctx, append([]event.QueueChange{queueChange(event.QueueRemoved, itemOf(p))}, changes...)...)
	})
	return withdrawn, err
}

// cancelChunk bounds the prompts that one transaction of PromptsCancel ends.
const cancelChunk = 200

// PromptsCancel ends all unfinished prompts of the session, including the running one with its run,
// and returns how many there were. It commits in chunks: a call that fails in between has made
// progress, and the next one continues.
func (db *DB) PromptsCancel(ctx context.Context, sessionID, reason string) (cancelled int64, err error) {
	for {
		var chunk int64
		more := false
		err := db.inSession(ctx, "cancel prompts", sessionID, func(s *sessionTx) error {
			chunk, more, err = s.cancelSome(ctx, text(reason))
			return err
		})
		if err != nil {
			return cancelled, err
		}
		cancelled += chunk
		if !more {
			return cancelled, nil
		}
	}
}

// cancelSome ends the run in progress and up to cancelChunk prompts, and reports whether more may
// remain.
func (s *sessionTx) cancelSome(ctx context.Context, reason string) (cancelled int64, more bool, err error) {
	claim, err := s.q.RunGetOpen(ctx, s, s.row.ID)
	switch {
	case err == nil:
		if err := s.cancelRun(ctx, claim.ID, reason); err != nil {
			return 0, false, err
		}
		cancelled++
	case !isNoRows(err):
		return 0, false, err
	}
	rows, err := s.q.PromptsEnd(ctx, s, &dbsqlc.PromptsEndParams{SessionID: s.row.ID, Reason: reason, At: s.now, MaxItems: cancelChunk})
	if err != nil || len(rows) == 0 {
		return cancelled, false, err
	}
	slices.SortFunc(rows, func(a, b dbsqlc.PromptsEndRow) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	changes := make([]event.QueueChange, len(rows))
	for i, row := range rows {
		if err := s.add(event.TypePrompt, row.RunID, event.PromptChanged(promptChanged(dbsqlc.PromptsRevertRow(row)))); err != nil {
			return 0, false, err
		}
		changes[i] = removed(row.ID, row.Ordinal, row.Status)
	}
	return cancelled + int64(len(rows)), len(rows) == cancelChunk, s.reportQueue(ctx, changes...)
}

// cancelRun ends the open run as cancelled.
func (s *sessionTx) cancelRun(ctx context.Context, runID, reason string) error {
	var c closing
	var in lookups
	err := in.also(ctx, s.Conn, func(in *lookups) error { return c.read(ctx, s.q, in, s.row.ID, runID) })
	if err != nil {
		return err
	}
	if _, err := s.runEnd(ctx, c, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled, Reason: reason}); err != nil {
		return err
	}
	return s.sendLater(ctx) // the caller ends the other prompts
}

// PromptRequeue returns a prompt whose outcome is unknown to its place in the queue. A prompt that
// is already queued or processing again is unchanged; otherwise it returns illegal_state.
func (db *DB) PromptRequeue(ctx context.Context, sessionID, promptID string) error {
	return db.inSession(ctx, "put a prompt back", sessionID, func(s *sessionTx) error {
		p, err := s.promptGet(ctx, promptID)
		if err != nil {
			return err
		}
		switch session.PromptStatus(p.Status) {
		case session.PromptQueued, session.PromptProcessing:
			return nil
		case session.PromptUnknown:
		default:
			return illegal("the prompt is %s, not unknown", p.Status)
		}
		if session.State(s.row.Status).Final() {
			return illegal("the session is terminated")
		}
		return s.promptQueue(ctx, promptID, "")
	})
}

func (s *sessionTx) promptQueue(ctx context.Context, promptID, reason string) error {
	p, err := s.q.PromptQueue(ctx, s, &dbsqlc.PromptQueueParams{SessionID: s.row.ID, ID: promptID, Reason: reason})
	if err != nil {
		return err
	}
	if err := s.addPrompt(p); err != nil {
		return err
	}
	joined, err := s.joinedQueue(ctx, p)
	if err != nil {
		return err
	}
	steers, err := s.steersRequeue(ctx, p)
	if err != nil {
		return err
	}
	joined = append(joined, steers...)
	return s.reportQueue(ctx, append([]event.QueueChange{queueChange(event.QueueAdded, itemOf(p))}, joined...)...)
}

func (s *sessionTx) promptGet(ctx context.Context, promptID string) (dbsqlc.Prompt, error) {
	p, err := s.q.PromptGet(ctx, s, &dbsqlc.PromptGetParams{SessionID: s.row.ID, ID: promptID})
	if isNoRows(err) {
		return p, noPrompt(promptID)
	}
	return p, err
}

func promptOf(row dbsqlc.Prompt) session.Prompt {
	p := session.Prompt{
		ID: row.ID, SessionID: row.SessionID, Ordinal: row.Ordinal, Rank: row.Rank, Status: session.PromptStatus(row.Status),
		Content: row.Content, Mode: session.Mode(row.Mode), OnUnknown: session.OnUnknown(row.OnUnknown),
		Author: row.Author, Depth: int64(row.Depth), RunID: row.RunID, AllottedRun: row.AllottedRunID, Claims: int(row.Claims), BaseSession: row.BaseSessionID, BaseBundle: row.BaseBundleID,
		Reason: row.Reason, RequestID: row.RequestID, TraceParent: row.TraceParent,
		Attachments: attachmentsOf(row.Attachments), JoinedTo: row.JoinedTo, CollectUntil: orZero(row.CollectUntil),
		CreatedAt: row.CreatedAt.UTC(), StartedAt: orZero(row.StartedAt), EndedAt: orZero(row.EndedAt),
	}
	if row.Resolution != "" {
		p.Resolved = &session.Resolved{Action: session.Resolution(row.Resolution), Note: row.ResolutionNote, At: orZero(row.ResolvedAt)}
	}
	return p
}

// promptChanged converts a prompt that was read without its content.
func promptChanged(row dbsqlc.PromptsRevertRow) session.Prompt {
	return promptOf(dbsqlc.Prompt{
		SessionID: row.SessionID, ID: row.ID, Ordinal: row.Ordinal, Status: row.Status, Mode: row.Mode, OnUnknown: row.OnUnknown,
		Author: row.Author, Depth: row.Depth, RunID: row.RunID, Reason: row.Reason, CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
		Resolution: row.Resolution, ResolutionNote: row.ResolutionNote, ResolvedAt: row.ResolvedAt, RequestID: row.RequestID,
		JoinedTo: row.JoinedTo, AllottedRunID: row.AllottedRunID,
	})
}
