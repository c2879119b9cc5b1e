package postgres

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// RunAttach makes token the attempt whose appends count and returns the data that the worker needs.
// It is idempotent for a token. From the second attempt on, a turn_start event reports that another
// worker continues the run. It returns illegal_state if the run has ended or belongs to an older
// generation, or if its current attempt is not older than by: an attempt that was paused before it
// attached must not replace a newer one. A previous attempt that did not report its end counts as
// lost: see run.Losses.
//
// expected is called like run.Claim.Expected, for the first attempt at a run; it may be nil.
func (db *DB) RunAttach(ctx context.Context, runID, token string, by run.Dispatch, expected func(run.Start)) (start run.Start, err error) {
	var found startable
	read := func(key runKey, in *lookups) error { return found.read(ctx, db.q, in, runID, key) }
	err = db.inRunWith(ctx, "attach to a run", runID, read, func(s *sessionTx, claim dbsqlc.Run) error {
		if claim.Generation < s.row.Generation && claim.EndedAt == nil {
			return illegal("run %s belongs to generation %d, the newest is %d", runID, claim.Generation, s.row.Generation)
		}
		if claim.ParkedAt != nil {
			return illegal("run %s is parked", runID)
		}
		held := heldBy(claim)
		if claim.Token != token && !by.After(held) {
			return illegal("run %s is held by attempt %d of dispatch %d", runID, held.Attempt, held.No)
		}
		if claim.EndedAt == nil && claim.Token != token && claim.Attempt > 0 {
			err := s.add(event.TypeTurnStart, runID, event.TurnStartData{RunID: session.RunOf(runID), PromptID: claim.PromptID, Attempt: claim.Attempt + 1})
			if err != nil {
				return err
			}
		}
		losses := run.Losses{Frame: claim.LossesFrame, Points: int(claim.Losses)}
		if claim.Token != token {
			if claim.Attempt > 0 {
				losses = losses.After(run.Doing(claim.Doing), claim.LastFrame)
			}
			if claim.Doing != string(run.DoingRefused) {
				claim.Doing = string(run.DoingAttached)
			}
			if losses.Quarantine() {
				claim.Doing = string(run.DoingRefused)
			}
			claim.Losses, claim.LossesFrame = int32(losses.Points), losses.Frame
		}
		start, err = s.runTake(ctx, claim, &found, token, claim.Attempt+1, by)
		if expected != nil && claim.Attempt == 0 && claim.Part == 0 {
			expect := start
			s.later.sent = func() { expected(expect) }
		}
		start.Suspect = losses.Points > 0 && losses.Frame == claim.LastFrame
		start.Quarantine = claim.Doing == string(run.DoingRefused)
		return err
	})
	if err == nil {
		err = db.openState(&start.Run)
	}
	return start, err
}

// RunDoing records the step in which the attempt with the token handles the run's frames. It
// changes nothing if another attempt has the run.
func (db *DB) RunDoing(ctx context.Context, runID, token string, doing run.Doing) error {
	err := db.q.RunDoing(ctx, db.pool, &dbsqlc.RunDoingParams{ID: runID, Token: token, Doing: string(doing)})
	return fault("record the progress of an attempt", err)
}

func heldBy(claim dbsqlc.Run) run.Dispatch {
	return run.Dispatch{No: claim.HeldDispatch, Attempt: claim.HeldAttempt}
}

// RunFence makes token the only valid one, so that no worker can append to the run any more, and
// returns the same as RunAttach. It accepts every generation and does not count as an attempt.
func (db *DB) RunFence(ctx context.Context, runID, token string) (start run.Start, err error) {
	err = db.inRun(ctx, "fence a run", runID, func(s *sessionTx, run dbsqlc.Run) error {
		start, err = s.runTake(ctx, run, new(startable), token, run.Attempt, heldBy(run))
		return err
	})
	if err == nil {
		err = db.openState(&start.Run)
	}
	return start, err
}

func (s *sessionTx) runTake(ctx context.Context, claim dbsqlc.Run, found *startable, token string, attempt int64, by run.Dispatch) (run.Start, error) {
	if claim.EndedAt != nil {
		return run.Start{}, illegal("run %s has ended", claim.ID)
	}
	if token == "" {
		return run.Start{}, failure.Errorf(failure.Invalid, "an attempt requires a token")
	}
	if claim.Token != token {
		err := s.q.RunAttach(ctx, &s.later, &dbsqlc.RunAttachParams{
			ID: claim.ID, Token: token, Attempt: attempt, HeldDispatch: by.No, HeldAttempt: by.Attempt,
			Doing: claim.Doing, Losses: claim.Losses, LossesFrame: claim.LossesFrame,
		})
		if err != nil {
			return run.Start{}, err
		}
		claim.Token, claim.Attempt, claim.HeldDispatch, claim.HeldAttempt = token, attempt, by.No, by.Attempt
	}
	return s.runStart(ctx, claim, found)
}

// runStart returns the data that a worker needs. It reads the data in one round trip unless found
// has it, since a prompt waits for the result.
func (s *sessionTx) runStart(ctx context.Context, claim dbsqlc.Run, found *startable) (run.Start, error) {
	if found.key != keyOf(claim) {
		*found = startable{}
		var in lookups
		err := in.also(ctx, s.Conn, func(in *lookups) error { return found.read(ctx, s.q, in, claim.ID, keyOf(claim)) })
		if err != nil {
			return run.Start{}, err
		}
	}
	if found.missing {
		return run.Start{}, noPrompt(claim.PromptID)
	}
	return s.startOf(ctx, claim, found.prompt, found.of)
}

// startable has the prompt of a run and its surroundings.
type startable struct {
	key     runKey // of the run that it was read for
	prompt  dbsqlc.Prompt
	missing bool // there is no such prompt
	of      surroundings
}

func (f *startable) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, runID string, key runKey) error {
	prompt, err := q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: key.sessionID, ID: key.promptID})
	f.key, f.prompt, f.missing = key, prompt, isNoRows(err)
	if f.missing {
		err = nil
	}
	return cmp.Or(err, f.of.read(ctx, q, in, key.sessionID, key.generation, runID))
}

// surroundings is the data that a worker needs for a run in addition to the run and its prompt.
type surroundings struct {
	dbsqlc.RunSurroundingsRow
	transcripts []transcript.Position
	secretsMark run.SecretsMark
}

// startOf combines a run with its surroundings.
func (s *sessionTx) startOf(ctx context.Context, claim dbsqlc.Run, prompt dbsqlc.Prompt, of surroundings) (start run.Start, err error) {
	start = run.Start{
		Run: runOf(claim), Generation: s.row.Generation, Prompt: promptOf(prompt), SandboxID: of.SandboxID, Resume: of.Reached,
		Transcripts: of.transcripts, SecretsMark: of.secretsMark,
		Files: workspacefile.Position{Session: s.row.ID, Lineage: of.Lineage, Seq: of.Seq, Base: of.Base, DiffKey: of.DiffKey},
	}
	if start.Receipt, err = receiptOf(of.Receipt); err != nil {
		return start, err
	}
	joined, err := s.joinedTo(ctx, prompt)
	if err != nil {
		return start, err
	}
	joinInto(&start.Prompt, joined)
	if of.HandedFrom != "" {
		if start.HandOff, err = s.handOff(ctx, claim.BeganSeq); err != nil {
			return start, err
		}
	}
	start.Agent, start.MemoryID = of.Agent, cmp.Or(of.MemoryID, s.row.ID)
	if err := json.Unmarshal(of.Options, &start.Options); err != nil {
		return start, err
	}
	return start, s.profileInto(ctx, of.Profile, &start)
}
