package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// Sealer seals data before it is stored.
type Sealer interface {
	// SealData seals data of an owner under a name. Its result begins with the byte 2.
	SealData(use, owner, name string, data []byte) []byte
	// OpenData reverses SealData.
	OpenData(use, owner, name string, sealed []byte) ([]byte, error)
	// Current reports whether data was sealed with the key that SealData uses now.
	Current(sealed []byte) bool
}

// Uses of sealed data.
const (
	useTranscripts = "transcripts"
	useRuns        = "runs" // states of turns, named by the id of the run
)

// sealedByte is the first byte of sealed data. A frame of zstd begins with 0x28.
const sealedByte = 2

// pack compresses and seals a part of a session's transcript. Without a Sealer it only compresses.
func (db *DB) pack(sessionID, path string, data []byte) []byte {
	packed := db.zip.EncodeAll(data, nil)
	if db.options.Sealer == nil {
		return packed
	}
	return db.options.Sealer.SealData(useTranscripts, sessionID, path, packed)
}

// unpack appends to data what pack has packed. Earlier releases did not seal it.
func (db *DB) unpack(sessionID, path string, packed, data []byte) ([]byte, error) {
	if len(packed) > 0 && packed[0] == sealedByte {
		if db.options.Sealer == nil {
			return nil, failure.Errorf(failure.Unavailable, "this process has no OVERWINTER_SECRET_KEY, so it cannot read transcripts")
		}
		opened, err := db.options.Sealer.OpenData(useTranscripts, sessionID, path, packed)
		if err != nil {
			return nil, failure.Errorf(failure.Internal, "transcript %s: %v", path, err)
		}
		packed = opened
	}
	out, err := db.unzip.DecodeAll(packed, data)
	if err != nil {
		return nil, failure.Errorf(failure.Internal, "transcript %s: %v", path, err)
	}
	return out, nil
}

// sealState seals the state of a turn. It contains unmasked text of the agent, because text that
// may be the beginning of a secret is buffered in it.
func (db *DB) sealState(sessionID, runID string, state []byte) []byte {
	if db.options.Sealer == nil || len(state) == 0 {
		return state
	}
	return db.options.Sealer.SealData(useRuns, sessionID, runID, state)
}

// openState opens the state of a turn. Earlier releases stored it as JSON.
func (db *DB) openState(run *run.Run) error {
	if len(run.Translator) == 0 || run.Translator[0] != sealedByte {
		return nil
	}
	if db.options.Sealer == nil {
		return failure.Errorf(failure.Unavailable, "this process has no OVERWINTER_SECRET_KEY, so it cannot read the state of run %s", run.ID)
	}
	opened, err := db.options.Sealer.OpenData(useRuns, run.SessionID, run.ID, run.Translator)
	if err != nil {
		return failure.Errorf(failure.Internal, "state of run %s: %v", run.ID, err)
	}
	run.Translator = opened
	return nil
}

// RunsReseal reseals the states of open runs that are not sealed with the current key. It skips a
// run that has grown or ended meanwhile: its worker seals it. It returns how many it resealed, and
// how many it could not open.
func (db *DB) RunsReseal(ctx context.Context) (resealed, failed int, err error) {
	const doing = "seal states of runs again"
	for after := ""; ; {
		rows, err := db.q.RunsOpenStates(ctx, db.pool, &dbsqlc.RunsOpenStatesParams{AfterID: after, MaxItems: resealBatch})
		if err != nil {
			return resealed, failed, fault(doing, err)
		}
		for _, row := range rows {
			after = row.ID
			if db.options.Sealer.Current(row.Translator) {
				continue
			}
			run := run.Run{ID: row.ID, SessionID: row.SessionID, Translator: row.Translator}
			if db.openState(&run) != nil {
				failed++
				continue
			}
			n, err := db.q.RunReseal(ctx, db.pool, &dbsqlc.RunResealParams{
				ID: row.ID, LastFrame: row.LastFrame, Was: row.Translator, Translator: db.sealState(row.SessionID, row.ID, run.Translator),
			})
			if err != nil {
				return resealed, failed, fault(doing, err)
			}
			resealed += int(n)
		}
		if len(rows) < resealBatch {
			return resealed, failed, nil
		}
	}
}

// resealBatch bounds the parts of transcripts that one transaction reseals.
const resealBatch = 64

// TranscriptsReseal reseals the stored parts of transcripts that are not sealed with the current
// key, in the sessions after a given one in the order of ids. It returns how many parts it
// resealed, how many it could not open, and the session to continue after; "" at the end. Each
// transaction reseals a few parts of one session under its lock, so that the call can be
// interrupted and repeated while sessions are active.
func (db *DB) TranscriptsReseal(ctx context.Context, after string) (resealed, failed int, next string, err error) {
	const doing = "seal transcripts again"
	id, err := db.q.TranscriptsSessionAfter(ctx, db.pool, after)
	if isNoRows(err) {
		return 0, 0, "", nil
	}
	if err != nil {
		return 0, 0, after, fault(doing, err)
	}
	position := dbsqlc.TranscriptsAfterParams{SessionID: id, MaxItems: resealBatch, Version: -1, Start: -1}
	for {
		var rows []dbsqlc.TranscriptsAfterRow
		err := db.inSession(ctx, doing, id, func(s *sessionTx) error {
			var err error
			if rows, err = s.q.TranscriptsAfter(ctx, s, &position); err != nil {
				return err
			}
			for _, row := range rows {
				if db.options.Sealer.Current(row.Data) {
					continue
				}
				data, err := db.unpack(id, row.Path, row.Data, nil)
				if err != nil {
					failed++
					continue
				}
				err = s.q.TranscriptReseal(ctx, s, &dbsqlc.TranscriptResealParams{
					SessionID: id, Path: row.Path, Version: row.Version, Start: row.Start, Data: db.pack(id, row.Path, data),
				})
				if err != nil {
					return err
				}
				resealed++
			}
			return nil
		})
		if failure.CodeOf(err) == failure.NoSession {
			return resealed, failed, id, nil
		}
		if err != nil {
			return resealed, failed, after, err
		}
		if len(rows) < resealBatch {
			return resealed, failed, id, nil
		}
		last := rows[len(rows)-1]
		position.Path, position.Version, position.Start = last.Path, last.Version, last.Start
	}
}
