package postgres

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// WhyFacts reads the facts that explain a subject of a session, in one snapshot. The id is that of
// a prompt or a question, or the number of a transition; empty for the newest or current one.
// Errors: session_not_found, prompt_not_found, question_not_found; invalid_request if the
// transition does not exist.
func (db *DB) WhyFacts(ctx context.Context, sessionID string, of why.Subject, id string) (facts why.Facts, err error) {
	err = db.inTx(ctx, "explain a session", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		w := whyReader{db: db, tx: tx, id: sessionID}
		facts, err = w.read(ctx, of, id)
		return err
	})
	return facts, err
}

// whyReader reads the facts of one session.
type whyReader struct {
	db *DB
	tx pgx.Tx
	id string
	f  why.Facts
}

func (w *whyReader) read(ctx context.Context, of why.Subject, id string) (why.Facts, error) {
	s, err := w.db.sessionGet(ctx, w.tx, w.id)
	if err != nil {
		return w.f, err
	}
	if s.Starts() {
		if err := w.db.startWaits(ctx, w.tx, []*session.Session{&s}); err != nil {
			return w.f, err
		}
	}
	w.f.Session = s
	row, err := w.db.q.WhySession(ctx, w.tx, w.id)
	if err != nil {
		return w.f, err
	}
	w.f.Now, w.f.WorkflowRun, w.f.Attended = row.Now.UTC(), row.WorkflowRun, row.Attendant != ""
	promptID, questionID, no := "", "", int64(0)
	switch of {
	case why.Transition, why.Receipt:
		if no, err = w.transitionNo(ctx, of, id); err != nil {
			return w.f, err
		}
	case why.Prompt:
		if promptID, err = w.prompt(ctx, id); err != nil {
			return w.f, err
		}
	case why.Question:
		questionID = id
	}
	for _, read := range []func(context.Context) error{
		func(ctx context.Context) error { return w.transitions(ctx, no) },
		w.commands, w.sandboxes, w.bundles,
		func(ctx context.Context) error { return w.problems(ctx, row.No) },
		w.outages,
		func(ctx context.Context) error { return w.runs(ctx, promptID) },
		func(ctx context.Context) error { return w.questions(ctx, questionID) },
		w.woke, w.retry,
	} {
		if err := read(ctx); err != nil {
			return w.f, err
		}
	}
	if questionID != "" && len(w.f.Questions) == 0 {
		return w.f, noQuestion(questionID)
	}
	return w.f, nil
}

// transitionNo returns the number of the requested transition; 0 for the newest.
func (w *whyReader) transitionNo(ctx context.Context, of why.Subject, id string) (int64, error) {
	switch {
	case id != "":
		no, err := strconv.ParseInt(id, 10, 64)
		if err != nil || no < 1 || no > w.f.Session.TransitionNo {
			return 0, &failure.Error{Code: failure.Invalid, Message: "id is not the number of a transition of the session, which has " +
				strconv.FormatInt(w.f.Session.TransitionNo, 10), Fields: []failure.Field{{Field: "id", Message: "is not the number of a transition of the session"}}}
		}
		return no, nil
	case of == why.Receipt:
		return w.db.q.WhyReceiptNo(ctx, w.tx, w.id)
	}
	return 0, nil
}

// prompt reads the requested prompt.
func (w *whyReader) prompt(ctx context.Context, id string) (string, error) {
	if id == "" {
		newest, err := w.db.q.WhyPrompt(ctx, w.tx, w.id)
		if err != nil || newest == "" {
			return "", err
		}
		id = newest
	}
	row, err := w.db.q.PromptGet(ctx, w.tx, &dbsqlc.PromptGetParams{SessionID: w.id, ID: id})
	if isNoRows(err) {
		return "", noPrompt(id)
	}
	if err != nil {
		return "", err
	}
	p := promptOf(row)
	p.Content, p.Attachments = "", nil
	w.f.Prompt = &p
	ahead, err := w.db.q.WhyAhead(ctx, w.tx, &dbsqlc.WhyAheadParams{SessionID: w.id, Rank: p.Rank, Ordinal: p.Ordinal})
	w.f.Processing, w.f.Ahead = ahead.Processing, ahead.Ahead
	return id, err
}

func (w *whyReader) transitions(ctx context.Context, no int64) error {
	rows, err := w.db.q.WhyTransitions(ctx, w.tx, &dbsqlc.WhyTransitionsParams{SessionID: w.id, No: no, MaxItems: why.MaxTransitions})
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(rows) {
		receipt, err := receiptOf(r.Receipt)
		if err != nil {
			return err
		}
		w.f.Transitions = append(w.f.Transitions, why.Step{CommandID: r.CommandID, Transition: session.Transition{
			SessionID: w.id, No: r.No, From: session.State(r.FromStatus), To: session.State(r.ToStatus), Event: session.Event(r.Event),
			Reason: r.Reason, Generation: r.Generation, Receipt: receipt, At: r.At.UTC(),
		}})
	}
	return nil
}

func (w *whyReader) commands(ctx context.Context) error {
	rows, err := w.db.q.WhyCommands(ctx, w.tx, &dbsqlc.WhyCommandsParams{SessionID: w.id, MaxItems: why.MaxCommands})
	for _, r := range rows {
		w.f.Commands = append(w.f.Commands, commandOf(r))
	}
	return err
}

// sandboxes reads the sandboxes up to the generation of the requested transition.
func (w *whyReader) sandboxes(ctx context.Context) error {
	generation := int64(math.MaxInt64)
	if n := len(w.f.Transitions); n > 0 && w.f.Transitions[n-1].No < w.f.Session.TransitionNo {
		generation = w.f.Transitions[n-1].Generation
	}
	rows, err := w.db.q.WhySandboxes(ctx, w.tx, &dbsqlc.WhySandboxesParams{SessionID: w.id, Generation: generation, MaxItems: why.MaxSandboxes})
	for _, r := range rows {
		w.f.Sandboxes = append(w.f.Sandboxes, why.Sandbox{
			Generation: r.Generation, ID: r.SandboxID, Status: session.SandboxStatus(r.Status), ReservedAt: r.ReservedAt.UTC(), ReadyAt: orZero(r.ReadyAt),
			Deadline: orZero(r.Deadline), SeenAt: orZero(r.SeenAt), EndedAt: orZero(r.EndedAt), EndReason: r.EndReason,
		})
	}
	return err
}

func (w *whyReader) bundles(ctx context.Context) error {
	before := w.f.Now
	if n := len(w.f.Transitions); n > 0 && w.f.Transitions[n-1].No < w.f.Session.TransitionNo {
		before = w.f.Transitions[n-1].At
	}
	rows, err := w.db.q.WhyBundles(ctx, w.tx, &dbsqlc.WhyBundlesParams{SessionID: w.id, Before: before, MaxItems: why.MaxBundles})
	for _, r := range rows {
		w.f.Bundles = append(w.f.Bundles, why.Bundle{
			ID: r.ID, Generation: r.Generation, HasSnapshot: r.SnapshotID != "", SnapshotGone: r.SnapshotGone, Checkpoint: r.Checkpoint,
			Verified: r.Verified, CreatedAt: r.CreatedAt.UTC(),
		})
	}
	return err
}

func (w *whyReader) problems(ctx context.Context, sessionNo int64) error {
	rows, err := w.db.q.WhyProblems(ctx, w.tx, &dbsqlc.WhyProblemsParams{SessionNo: sessionNo, MaxEvents: why.MaxEventsSearched, MaxItems: why.MaxProblems})
	for _, r := range rows {
		var p conversation.Problem
		if json.Unmarshal(r.Data, &p) == nil {
			w.f.Problems = append(w.f.Problems, why.Problem{At: r.At.UTC(), Code: p.Code, Message: p.Message})
		}
	}
	return err
}

func (w *whyReader) outages(ctx context.Context) error {
	rows, err := w.db.q.WhyOutages(ctx, w.tx, why.MaxOutages)
	for _, r := range rows {
		code := why.DatabaseUnavailable
		if r.Part == "temporal" {
			code = why.TemporalUnavailable
		}
		w.f.Outages = append(w.f.Outages, why.Outage{Code: code, Since: r.Since.UTC(), Until: r.Until.UTC()})
	}
	return err
}

func (w *whyReader) runs(ctx context.Context, promptID string) error {
	rows, err := w.db.q.WhyRuns(ctx, w.tx, &dbsqlc.WhyRunsParams{SessionID: w.id, PromptID: promptID, MaxItems: why.MaxRuns})
	for _, r := range rows {
		w.f.Runs = append(w.f.Runs, why.Run{
			ID: r.ID, PromptID: r.PromptID, Generation: r.Generation, Attempt: r.Attempt, Part: r.Part, Outcome: session.Outcome(r.Outcome), Reason: r.Reason,
			StartedAt: r.StartedAt.UTC(), EndedAt: orZero(r.EndedAt), ParkedAt: orZero(r.ParkedAt),
		})
	}
	return err
}

func (w *whyReader) retry(ctx context.Context) error {
	row, err := w.db.q.WhyRetry(ctx, w.tx, w.id)
	if isNoRows(err) {
		return nil
	}
	w.f.Retry = &why.Retry{RunID: row.RunID, At: row.At.UTC(), Message: row.Message}
	return err
}

// questions reads one question, or the newest ones, unresolved questions first.
func (w *whyReader) questions(ctx context.Context, id string) error {
	rows, err := w.db.q.WhyQuestions(ctx, w.tx, &dbsqlc.WhyQuestionsParams{SessionID: w.id, ID: id, MaxItems: why.MaxQuestions})
	for _, r := range rows {
		w.f.Questions = append(w.f.Questions, why.Asked{
			ID: r.ID, RunID: r.RunID, Status: r.Status, Reason: r.Reason, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
			ResolvedAt: orZero(r.ResolvedAt), Parked: r.ParkedPart > 0,
		})
	}
	slices.SortStableFunc(w.f.Questions, func(a, b why.Asked) int {
		switch {
		case a.ResolvedAt.IsZero() == b.ResolvedAt.IsZero():
			return 0
		case a.ResolvedAt.IsZero():
			return -1
		}
		return 1
	})
	return err
}

// woke reads the prompt that was queued when the session last woke.
func (w *whyReader) woke(ctx context.Context) error {
	for _, t := range slices.Backward(w.f.Transitions) {
		if t.Event != session.EventWake && t.From != session.Initializing || t.Reason != session.ReasonPrompt {
			continue
		}
		row, err := w.db.q.WhyWaiting(ctx, w.tx, &dbsqlc.WhyWaitingParams{SessionID: w.id, At: t.At})
		if isNoRows(err) {
			return nil
		}
		if err == nil {
			w.f.Woke = &why.Waiting{ID: row.ID, CreatedAt: row.CreatedAt.UTC()}
		}
		return err
	}
	return nil
}
