package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// questionBatch collects the changes to questions in the appends of a transaction.
type questionBatch struct {
	runIDs []string // runs with such changes
	asked  []dbsqlc.QuestionsAskedRow
	fresh  []*dbsqlc.QuestionInsertParams
	closed []*dbsqlc.QuestionCancelParams
}

func newQuestionBatch(appends []eventlog.Append) *questionBatch {
	var b questionBatch
	for _, a := range appends {
		if a.RunID != "" && len(a.Questions)+len(a.Resolved) > 0 {
			b.runIDs = append(b.runIDs, a.RunID)
		}
	}
	return &b
}

// read queries nothing if no append concerns a question, which is nearly always.
func (b *questionBatch) read(ctx context.Context, q *dbsqlc.Queries, in *lookups) error {
	if len(b.runIDs) == 0 {
		return nil
	}
	rows, err := q.QuestionsAsked(ctx, in, sortedSet(b.runIDs))
	b.asked = rows
	return err
}

func (b *questionBatch) find(runID, agentID string) *dbsqlc.QuestionsAskedRow {
	i := slices.IndexFunc(b.asked, func(r dbsqlc.QuestionsAskedRow) bool { return r.RunID == runID && r.AgentID == agentID })
	if i < 0 {
		return nil
	}
	return &b.asked[i]
}

// maxAgentID bounds the length of an agent's own id in an index.
const maxAgentID = 512

// agentIDOf returns the stored form of an agent's id of a question. Agents choose ids freely, and
// may reuse them after a restart.
func agentIDOf(part int64, id string) string {
	if part > 0 {
		id = strconv.FormatInt(part, 10) + "/" + id
	}
	id = text(id)
	if len(id) <= maxAgentID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// ask adds a question from a frame, unless it is known.
func (b *appendTx) ask(s *appendSession, a eventlog.Append, asked eventlog.Question) error {
	agentID := agentIDOf(asked.Part, asked.Asked.ID)
	if b.questions.find(a.RunID, agentID) != nil {
		return nil
	}
	q := question.Question{
		ID: session.NewID(session.QuestionPrefix), SessionID: s.ID, RunID: a.RunID, Asked: asked.Asked,
		Status: question.Open, CreatedAt: s.Now, ExpiresAt: s.Now.Add(asked.ExpiresAt.Sub(asked.At)), // the clock that decides when answers are late
	}
	if asked.Decided != nil {
		q.Status = question.Answered
	}
	data, err := json.Marshal(q.Asked)
	if err != nil {
		return err
	}
	b.questions.asked = append(b.questions.asked, dbsqlc.QuestionsAskedRow{
		ID: q.ID, RunID: a.RunID, AgentID: agentID, Status: string(q.Status),
	})
	row := &dbsqlc.QuestionInsertParams{
		ID: q.ID, SessionID: s.ID, RunID: a.RunID, AgentID: agentID, Asked: storable(data), Status: string(q.Status),
		CreatedAt: q.CreatedAt, ExpiresAt: q.ExpiresAt,
	}
	b.questions.fresh = append(b.questions.fresh, row)
	if asked.Decided != nil {
		row.Reason, row.ResolvedAt = question.ReasonPolicy, &s.Now
		row.Answer, err = json.Marshal(asked.Decided)
		return err
	}
	if asked.Shown != nil {
		q.Asked = *asked.Shown
	}
	return b.report(s, a, event.TypeQuestion, event.QuestionData{Question: resource.Question(q)})
}

// resolve records that the agent no longer waits for an answer: it received one, or stopped
// waiting.
func (b *appendTx) resolve(s *appendSession, a eventlog.Append, r eventlog.Resolution) error {
	known := b.questions.find(a.RunID, agentIDOf(r.Part, r.AgentID))
	if known == nil {
		return nil // it was answered without asking a person
	}
	b.questions.closed = append(b.questions.closed, &dbsqlc.QuestionCancelParams{
		ID: known.ID, Reason: session.ReasonWithdrawn, At: s.Now,
	})
	if known.Status != string(question.Open) {
		return nil
	}
	known.Status = string(question.Cancelled)
	return b.report(s, a, event.TypeQuestionResolved, event.QuestionResolvedData{QuestionID: known.ID, Reason: session.ReasonWithdrawn})
}

// report adds an event that originates in the store.
func (b *appendTx) report(s *appendSession, a eventlog.Append, kind string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	s.LastSeq++
	s.changed = true
	b.log.add(&eventRow{
		SessionID: s.ID, SessionNo: s.No, Seq: s.LastSeq, Type: kind, RunID: a.RunID, RunNo: runNo(a.RunID), RunExists: true,
		At: s.Now, Data: string(storable(body)),
	})
	return nil
}

func (b *questionBatch) flush(ctx context.Context, q *dbsqlc.Queries, out *pipeline) error {
	for _, p := range b.fresh {
		if err := q.QuestionInsert(ctx, out, p); err != nil {
			return err
		}
	}
	for _, p := range b.closed {
		if err := q.QuestionCancel(ctx, out, p); err != nil {
			return err
		}
	}
	return nil
}
