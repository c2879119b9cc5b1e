package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TranscriptAppend stores segments, those of one session together or not at all.
// What is stored already is skipped, also in part; a higher version starts the
// file anew and deletes the one before; an older version is skipped; a gap is
// illegal_state.
func (db *DB) TranscriptAppend(ctx context.Context, segments []session.TranscriptSegment) error {
	bySession := map[string][]session.TranscriptSegment{}
	var order []string
	for _, segment := range segments {
		if _, ok := bySession[segment.SessionID]; !ok {
			order = append(order, segment.SessionID)
		}
		bySession[segment.SessionID] = append(bySession[segment.SessionID], segment)
	}
	for _, id := range order {
		err := db.inSession(ctx, "append to a transcript", id, func(s *sessionTx) error {
			return s.transcriptAppend(ctx, db, bySession[id])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sessionTx) transcriptAppend(ctx context.Context, db *DB, segments []session.TranscriptSegment) error {
	positions, err := transcriptPositions(ctx, s.q, s, s.row.ID)
	if err != nil {
		return err
	}
	stored := map[string]session.TranscriptPosition{}
	for _, p := range positions {
		stored[p.Path] = p
	}
	for _, segment := range segments {
		at, known := stored[segment.Path]
		if known && segment.Version < at.Version {
			continue
		}
		if !known || segment.Version > at.Version {
			at = session.TranscriptPosition{Path: segment.Path, Version: segment.Version}
		}
		if segment.Offset < 0 {
			return session.Faultf(session.CodeInvalid, "a segment of %s starts at %d", segment.Path, segment.Offset)
		}
		if segment.Offset > at.Size {
			return illegal("transcript %s has %d bytes, the segment starts at %d", segment.Path, at.Size, segment.Offset)
		}
		fresh := segment.Data
		if have := at.Size - segment.Offset; have > 0 {
			fresh = fresh[min(have, int64(len(fresh))):]
		}
		// An empty segment still says that a file exists, or that it is empty again.
		if len(fresh) == 0 && known && at.Version == stored[segment.Path].Version {
			continue
		}
		err := s.q.TranscriptInsert(ctx, s, &dbsqlc.TranscriptInsertParams{
			SessionID: segment.SessionID, Path: segment.Path, Version: segment.Version, Start: at.Size,
			Size: int64(len(fresh)), RunID: segment.RunID, Data: db.pack(segment.SessionID, segment.Path, fresh),
		})
		if err != nil {
			return err
		}
		if known && segment.Version > stored[segment.Path].Version {
			err := s.q.TranscriptDeleteOlder(ctx, s, &dbsqlc.TranscriptDeleteOlderParams{
				SessionID: segment.SessionID, Path: segment.Path, Version: segment.Version,
			})
			if err != nil {
				return err
			}
		}
		at.Size += int64(len(fresh))
		stored[segment.Path] = at
	}
	return nil
}

// TranscriptPositions says how much of each file is stored, by path.
func (db *DB) TranscriptPositions(ctx context.Context, sessionID string) ([]session.TranscriptPosition, error) {
	positions, err := transcriptPositions(ctx, db.q, db.pool, sessionID)
	return positions, fault("read transcript positions", err)
}

func transcriptPositions(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, sessionID string) ([]session.TranscriptPosition, error) {
	rows, err := q.TranscriptPositions(ctx, tx, sessionID)
	if err != nil {
		return nil, err
	}
	out := make([]session.TranscriptPosition, len(rows))
	for i, row := range rows {
		out[i] = session.TranscriptPosition{Path: row.Path, Version: row.Version, Size: row.Size}
	}
	return out, nil
}

// TranscriptFiles returns the native transcripts, whole, by path;
// session_not_found when there is no such session.
func (db *DB) TranscriptFiles(ctx context.Context, sessionID string) ([]session.TranscriptFile, error) {
	const doing = "read transcripts"
	if _, err := db.EventsPosition(ctx, sessionID); err != nil {
		return nil, err
	}
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	var rows []dbsqlc.TranscriptSegmentsRow
	err := db.inTx(ctx, doing, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		rows, err = db.q.TranscriptSegments(ctx, tx, sessionID)
		return err
	})
	if err != nil {
		return nil, err
	}
	files := []session.TranscriptFile{}
	for _, row := range rows {
		if len(files) == 0 || files[len(files)-1].Path != row.Path {
			files = append(files, session.TranscriptFile{Path: row.Path, Version: row.Version, Data: []byte{}})
		}
		file := &files[len(files)-1]
		if file.Data, err = db.unpack(sessionID, row.Path, row.Data, file.Data); err != nil {
			return nil, fault(doing, err)
		}
	}
	slices.SortFunc(files, func(a, b session.TranscriptFile) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
