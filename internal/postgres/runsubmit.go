package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// RunSubmit stores the prompt of a run at its base. A session that is still at the base gets the
// prompt itself, unless it has an unfinished one: run_unfinished. With Fork, or if the session has
// worked since the base or is terminated, the run gets a session that is forked from the base.
// RunSubmit returns the prompt so that the caller can signal it. created is false if the key has
// been used for the same request: the run is then the earlier one. Other errors: session_not_found,
// bundle_not_found, and those of PromptSubmit and SessionFork.
func (db *DB) RunSubmit(ctx context.Context, r run.Request, idem session.Idempotency) (v run.View, p session.Prompt, created bool, err error) {
	const doing = "submit a run"
	for range 3 {
		var found bool
		if v, found, err = db.runByKey(ctx, idem); found || err != nil {
			return v, session.Prompt{}, false, fault(doing, err)
		}
		if p, created, err = db.runSubmit(ctx, r, idem); err == nil && !created {
			err = errKeyTaken
		}
		if !errors.Is(err, errKeyTaken) {
			break
		}
	}
	if err != nil {
		return run.View{}, session.Prompt{}, false, err
	}
	v, err = db.runView(ctx, db.pool, p.SessionID, p.ID)
	return v, p, true, fault(doing, err)
}

func (db *DB) runSubmit(ctx context.Context, r run.Request, idem session.Idempotency) (p session.Prompt, created bool, err error) {
	if r.BaseBundle != "" {
		bundle, err := db.BundleShow(ctx, r.BaseBundle)
		if err != nil {
			return p, false, err
		}
		r.BaseSession = bundle.SessionID
	}
	if !r.Fork {
		p, moved, err := db.runContinue(ctx, r, idem)
		if !moved {
			return p, err == nil, err
		}
	}
	return db.runFork(ctx, r, idem)
}

// runContinue queues the prompt of a run in the session of its base, unless the session has moved
// on from the bundle.
func (db *DB) runContinue(ctx context.Context, r run.Request, idem session.Idempotency) (p session.Prompt, moved bool, err error) {
	var open dbsqlc.Run
	var head []dbsqlc.PromptHeadRow
	var base dbsqlc.RunBaseRow
	read := func(in *lookups) error {
		var openErr, headErr, baseErr error
		if open, openErr = db.q.RunGetOpen(ctx, in, r.BaseSession); isNoRows(openErr) {
			openErr = nil
		}
		head, headErr = promptHead(ctx, db.q, in, r.BaseSession)
		if base, baseErr = db.q.RunBase(ctx, in, r.BaseSession); isNoRows(baseErr) {
			baseErr = nil
		}
		return cmp.Or(openErr, headErr, baseErr)
	}
	err = db.inSessionWith(ctx, "submit a run", r.BaseSession, read, func(s *sessionTx) error {
		p = r.Prompt
		p.SessionID, p.BaseSession = r.BaseSession, r.BaseSession
		if base.AtHead {
			p.BaseBundle = base.Head
		}
		// A session with an unfinished prompt may have moved on from its newest bundle, but a run
		// based on that bundle is refused rather than forked.
		if moved = r.BaseBundle != "" && (base.Head != r.BaseBundle || !base.AtHead && len(head) == 0 || session.State(s.row.Status).Final()); moved {
			return nil
		}
		if r.Profile != "" && r.Profile != base.Profile {
			return failure.Errorf(failure.NotSupported, "session %s has another profile; a run with another one needs fork", r.BaseSession)
		}
		if r.Agent != "" && r.Agent != s.row.Agent {
			return failure.Errorf(failure.NotSupported, "session %s has the agent %s; a run with another one needs fork", r.BaseSession, s.row.Agent)
		}
		if idem.Key != "" {
			earlier, err := db.keyTake(ctx, s, idem, p.SessionID, s.now)
			if err != nil {
				return err
			}
			if earlier != "" {
				return errKeyTaken
			}
			if err := s.q.IdempotencyPrompt(ctx, &s.later, &dbsqlc.IdempotencyPromptParams{Key: idem.Key, PromptID: p.ID}); err != nil {
				return err
			}
		}
		if idem.Refusal != nil {
			return idem.Refusal
		}
		if len(head) > 0 {
			unfinished := failure.Errorf(failure.RunUnfinished,
				"prompt %s of session %s has not ended; wait for it, cancel it, set fork, or submit a prompt, which waits", head[0].ID, p.SessionID)
			unfinished.Fields = []failure.Field{{Field: "unfinished.promptId", Message: head[0].ID}}
			return unfinished
		}
		p, err = s.promptSubmit(ctx, p, head, open.ID == "" && !s.held() && s.shouldSignal())
		return err
	})
	return p, moved, err
}

// runFork forks a session from the base, with the prompt of a run.
func (db *DB) runFork(ctx context.Context, r run.Request, idem session.Idempotency) (p session.Prompt, created bool, err error) {
	if r.BaseBundle == "" {
		base, err := db.q.RunBase(ctx, db.pool, r.BaseSession)
		switch {
		case isNoRows(err):
			return p, false, noSession(r.BaseSession)
		case err != nil:
			return p, false, fault("submit a run", err)
		case base.Head == "":
			return p, false, failure.Errorf(failure.NoBundleThere, "session %s has no bundle yet; save one with sync, or have it hibernate", r.BaseSession)
		}
		r.BaseBundle = base.Head
	}
	p = r.Prompt
	p.SessionID, p.BaseSession, p.BaseBundle = r.SessionID, r.BaseSession, r.BaseBundle
	fork := fork.Fork{ID: r.SessionID, SessionID: r.BaseSession, BundleID: r.BaseBundle, Profile: r.Profile, Agent: r.Agent}
	_, created, err = db.SessionFork(ctx, fork, &p, idem)
	p.Ordinal, p.Notify = 1, true
	return p, created, err
}
