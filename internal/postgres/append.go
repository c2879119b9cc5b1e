package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// EventsAppend commits a batch of appends to any number of sessions in one transaction, those of
// one session in the order given. The first result has an error per append: eventlog.ErrFenced if a
// newer generation or attempt owns the run, or if the run or the session has ended; invalid_request
// if the data is not JSON. Only that append is skipped. The second result is set if the transaction
// failed and nothing was written. EventsAppend waits for sessions that other transactions have
// locked.
//
// Frames that are already committed are skipped, so that an append can be repeated if its response
// was lost.
func (db *DB) EventsAppend(ctx context.Context, appends []eventlog.Append) ([]error, error) {
	return db.eventsAppend(ctx, appends, []string{"begin", genericPlans, "set local lock_timeout = " + milliseconds(lockTurn)}, false)
}

// EventsTryAppend is EventsAppend without waiting: an append to a session that another transaction
// has locked, or that does not exist, is skipped with eventlog.ErrBusy.
func (db *DB) EventsTryAppend(ctx context.Context, appends []eventlog.Append) ([]error, error) {
	verdicts := make([]error, len(appends))
	rest := make([]int, 0, len(appends)) // indexes of the appends that are not committed yet
	extended, err := db.eventsExtend(ctx, appends)
	if err != nil {
		return nil, err
	}
	var left []eventlog.Append
	for i, a := range appends {
		if _, done := extended[a.SessionID]; !done {
			rest, left = append(rest, i), append(left, a)
		}
	}
	if len(left) == 0 {
		return verdicts, nil
	}
	found, err := db.eventsAppend(ctx, left, []string{"begin", genericPlans}, true)
	if err != nil && len(extended) == 0 {
		return nil, err
	}
	for i, place := range rest {
		if verdicts[place] = eventlog.ErrBusy; err == nil { // after an error these are retried, since others were written
			verdicts[place] = found[i]
		}
	}
	return verdicts, nil
}

// genericPlans makes Postgres plan the statements of the transaction once per connection. They look
// rows up by key, so that one plan suits all parameters. By default the planner estimates a lower
// cost for a plan with known array elements, and plans each execution again. A generic plan is kept
// until a table is analyzed. A plan made while tables were small must not scan them after they have
// grown, so only index lookups are allowed.
const genericPlans = "select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), " +
	"set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"

func (db *DB) eventsAppend(ctx context.Context, appends []eventlog.Append, begin []string, skipLocked bool) ([]error, error) {
	b := db.newAppendTx(appends, skipLocked)
	var verdicts []error
	err := db.inTwoTrips(ctx, "append events", begin,
		func(in *lookups) error { return b.read(ctx, in) },
		func(out *pipeline) error {
			verdicts = make([]error, len(appends))
			for i, a := range appends {
				verdicts[i] = b.append(a, b.fold.drafts[i])
			}
			return b.flush(ctx, out)
		})
	if err != nil {
		db.readers.notify(b.from(), b.grown...) //nolint:contextcheck // the response to the commit may have been lost; the notifier outlives the call
		return nil, err
	}
	db.readers.publish(b.from(), b.log.events) //nolint:contextcheck // the notifier outlives the call
	return verdicts, nil
}

func (db *DB) newAppendTx(appends []eventlog.Append, skipLocked bool) appendTx {
	return appendTx{
		q: db.q, seal: db.sealState, appends: appends, skipLocked: skipLocked, fold: newBlockFold(appends), questions: newQuestionBatch(appends),
		reports: newReportBatch(appends),
	}
}

// from returns where the events of the batch are from. A turn that waits for an answer must be notified if
// its agent withdraws the question.
func (b *appendTx) from() origin {
	if slices.ContainsFunc(b.appends, func(a eventlog.Append) bool { return len(a.Resolved) > 0 }) {
		return outside
	}
	return inTurn
}

// appendTx is a transaction that has locked the sessions of a batch.
type appendTx struct {
	q       *dbsqlc.Queries
	seal    func(sessionID, runID string, state []byte) []byte
	appends []eventlog.Append
	// skipLocked skips sessions that other transactions have locked.
	skipLocked bool
	sessions   map[string]*appendSession
	runs       map[string]*appendRun
	log        eventRows
	fold       *blockFold
	grown      []string // sessions that got events

	questions *questionBatch
	reports   *reportBatch
	reported  before
}

type appendSession struct {
	dbsqlc.SessionsLockRow
	changed bool
}

type appendRun struct {
	dbsqlc.RunsForAppendRow
	state   []byte
	steers  bool
	changed bool
}

// read locks the sessions and reads, under the locks, the rows that the appends concern.
func (b *appendTx) read(ctx context.Context, in *lookups) error {
	var sessionIDs, runIDs []string
	for _, a := range b.appends {
		sessionIDs = append(sessionIDs, a.SessionID)
		if a.RunID != "" {
			runIDs = append(runIDs, a.RunID)
		}
	}
	sessions, lockErr := b.lock(ctx, in, sortedSet(sessionIDs))
	runs, runsErr := b.q.RunsForAppend(ctx, in, sortedSet(runIDs))
	if err := cmp.Or(lockErr, runsErr, b.readBlocks(ctx, in)); err != nil {
		return err
	}
	b.sessions = make(map[string]*appendSession, len(sessions))
	for _, row := range sessions {
		row.Now = row.Now.UTC()
		b.sessions[row.ID] = &appendSession{SessionsLockRow: row}
	}
	b.runs = make(map[string]*appendRun, len(runs))
	for _, row := range runs {
		b.runs[row.ID] = &appendRun{RunsForAppendRow: row}
	}
	return nil
}

// readBlocks reads the blocks, questions and reports that the appends concern.
func (b *appendTx) readBlocks(ctx context.Context, in *lookups) error {
	blocksErr := b.fold.read(ctx, b.q, in)
	questionsErr := b.questions.read(ctx, b.q, in)
	reported, reportsErr := b.reports.read(ctx, b.q, in)
	b.reported = reported
	return cmp.Or(blocksErr, questionsErr, reportsErr)
}

func (b *appendTx) lock(ctx context.Context, in *lookups, ids []string) ([]dbsqlc.SessionsLockRow, error) {
	if !b.skipLocked {
		return b.q.SessionsLock(ctx, in, ids)
	}
	rows, err := b.q.SessionsTryLock(ctx, in, ids)
	locked := make([]dbsqlc.SessionsLockRow, len(rows))
	for i, row := range rows {
		locked[i] = dbsqlc.SessionsLockRow(row)
	}
	return locked, err
}

// admit returns the session of an append, and its run if it has one. It refuses an append that is
// fenced or invalid.
func (b *appendTx) admit(a eventlog.Append, folds []foldDraft) (*appendSession, *appendRun, error) {
	s := b.sessions[a.SessionID]
	if s == nil && b.skipLocked {
		return nil, nil, eventlog.ErrBusy
	}
	if s == nil {
		return nil, nil, noSession(a.SessionID)
	}
	// The final status is the last event of a session.
	if s.Generation > a.Generation || session.State(s.Status).Final() {
		return nil, nil, eventlog.ErrFenced
	}
	var run *appendRun
	if a.RunID != "" {
		run = b.runs[a.RunID]
		if run == nil || run.SessionID != a.SessionID {
			return nil, nil, noRun(a.RunID)
		}
		if run.IsOver || a.Token == "" || run.Token != a.Token {
			return nil, nil, eventlog.ErrFenced
		}
	}
	for i, d := range a.Events {
		if !folds[i].plain && !json.Valid(d.Data) {
			return nil, nil, failure.Errorf(failure.Invalid, "the data of event %d (%s) is not JSON", i, d.Type)
		}
	}
	if err := checkFrames(a); err != nil {
		return nil, nil, err
	}
	for _, q := range a.Questions {
		if _, err := json.Marshal(q.Asked); err != nil {
			return nil, nil, failure.Errorf(failure.Invalid, "question %s is not JSON", q.Asked.ID)
		}
	}
	return s, run, nil
}

// append adds one append to the batch, or returns why it is refused.
func (b *appendTx) append(a eventlog.Append, folds []foldDraft) error {
	s, run, err := b.admit(a, folds)
	if err != nil {
		return err
	}
	questions, resolved := a.Questions, a.Resolved
	// asked applies questions and their resolutions from frames before the given one.
	asked := func(before int64) error {
		for ; len(questions) > 0 && questions[0].Frame < before; questions = questions[1:] {
			if questions[0].Frame > run.LastFrame {
				if err := b.ask(s, a, questions[0]); err != nil {
					return err
				}
			}
		}
		for ; len(resolved) > 0 && resolved[0].Frame < before; resolved = resolved[1:] {
			if resolved[0].Frame > run.LastFrame {
				if err := b.resolve(s, a, resolved[0]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for i, d := range a.Events {
		if run == nil {
			b.event(s, &dbsqlc.RunsForAppendRow{}, d, folds[i])
			continue
		}
		if err := asked(d.Frame); err != nil {
			return err
		}
		if d.Frame > run.LastFrame {
			b.event(s, &run.RunsForAppendRow, d, folds[i])
		}
	}
	if run != nil {
		if err := asked(math.MaxInt64); err != nil {
			return err
		}
	}
	if run != nil && a.LastFrame > run.LastFrame {
		run.LastFrame, run.state, run.steers, run.changed = a.LastFrame, a.State, a.Steers, true
	}
	return nil
}

func (b *appendTx) event(s *appendSession, run *dbsqlc.RunsForAppendRow, d eventlog.Draft, fold foldDraft) {
	data := storable(d.Data)
	if d.Type == string(conversation.EventTitle) && !s.retitle(data) {
		return
	}
	at := d.At.UTC()
	if d.At.IsZero() {
		at = s.Now // read after the lock, so that times follow the order of events
	}
	s.LastSeq++
	s.changed = true
	row := eventRow{
		SessionID: s.ID, SessionNo: s.No, Seq: s.LastSeq, Type: text(d.Type), ConversationID: text(d.ConversationID),
		RunID: run.ID, RunNo: run.No, RunExists: true, At: at, Data: string(data),
	}
	b.log.add(&row)
	b.fold.add(fold, row.Seq, conversation.EventType(d.Type), data)
	b.reports.add(b.reported, s.ID, run.ID, row, data)
}

// retitle sets the title that the agent has given the session, unless a person has set one, and
// reports whether the title changed.
func (s *appendSession) retitle(data json.RawMessage) bool {
	var title conversation.Title
	if s.TitleGiven || json.Unmarshal(data, &title) != nil || s.Title == text(title.Title) {
		return false
	}
	s.Title = text(title.Title)
	return true
}

// checkFrames refuses events that last_frame could not protect from being written twice: each event
// needs its own place (frame, n), in order, and none may follow the frame that the append commits.
func checkFrames(a eventlog.Append) error {
	if a.RunID == "" {
		return nil
	}
	for i, d := range a.Events {
		if d.Frame < 0 || d.Frame > a.LastFrame {
			return failure.Errorf(failure.Invalid, "event %d is of frame %d, which is not among the frames up to %d that the append commits", i, d.Frame, a.LastFrame)
		}
		if i > 0 && cmp.Or(cmp.Compare(a.Events[i-1].Frame, d.Frame), cmp.Compare(a.Events[i-1].N, d.N)) >= 0 {
			return failure.Errorf(failure.Invalid, "event %d (frame %d, %d) does not follow the previous event (frame %d, %d)",
				i, d.Frame, d.N, a.Events[i-1].Frame, a.Events[i-1].N)
		}
	}
	return nil
}

// storable returns data as valid UTF-8, which a column requires and agents may violate.
func storable(data json.RawMessage) json.RawMessage {
	if utf8.Valid(data) {
		return data
	}
	return bytes.ToValidUTF8(data, []byte("\uFFFD"))
}

func (b *appendTx) flush(ctx context.Context, out *pipeline) error {
	if err := b.questions.flush(ctx, b.q, out); err != nil {
		return err
	}
	runs := b.advancedRuns()
	if len(b.log.Seqs) == 0 {
		if len(runs.Ids) == 0 {
			return nil
		}
		return b.q.RunsAdvance(ctx, out, runs)
	}
	put, err := b.fold.changed()
	if err != nil {
		return err
	}
	write := &dbsqlc.AppendWriteParams{
		RunIds: runs.Ids, LastFrames: runs.LastFrames, Translators: runs.Translators, Steers: runs.Steers,
		BlockSessionIds: put.SessionIds, BlockConversationIds: put.ConversationIds, BlockIds: put.BlockIds, FirstSeqs: put.FirstSeqs,
		Positions: put.Positions, TextSeqs: put.TextSeqs, Lives: put.Lives, Removeds: put.Removeds, Blocks: put.Blocks,
		SessionNos: b.log.SessionNos, Seqs: b.log.Seqs, Types: b.log.Types, ConversationIds: b.log.ConversationIds,
		EventRunIds: b.log.RunIds, RunNos: b.log.RunNos, Ats: b.log.Ats, Datas: b.log.Datas,
	}
	for _, id := range slices.Sorted(maps.Keys(b.sessions)) {
		s := b.sessions[id]
		if !s.changed {
			continue
		}
		write.SessionIds = append(write.SessionIds, id)
		write.LastSeqs = append(write.LastSeqs, s.LastSeq)
		write.Titles = append(write.Titles, s.Title)
	}
	if err := b.log.insertConversations(ctx, b.q, out); err != nil {
		return err
	}
	if err := b.q.AppendWrite(ctx, out, write); err != nil {
		return err
	}
	if err := b.reports.flush(ctx, b.q, out); err != nil {
		return err
	}
	b.grown = write.SessionIds
	return nil
}

// advancedRuns returns the runs with new frames.
func (b *appendTx) advancedRuns() *dbsqlc.RunsAdvanceParams {
	var advance dbsqlc.RunsAdvanceParams
	for _, id := range slices.Sorted(maps.Keys(b.runs)) {
		if run := b.runs[id]; run.changed {
			advance.Ids = append(advance.Ids, id)
			advance.LastFrames = append(advance.LastFrames, run.LastFrame)
			advance.Steers = append(advance.Steers, run.steers)
			advance.Translators = append(advance.Translators, b.seal(run.SessionID, id, run.state))
		}
	}
	return &advance
}

func sortedSet(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}
