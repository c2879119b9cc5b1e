package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// TranscriptAppend stores segments, atomically for each session. It skips data that is already
// stored, even within a segment; a higher version restarts the file and deletes the previous
// version; an older version is skipped; a gap is illegal_state.
//
// Data beyond a limit is not stored, which is not an error: the file keeps its bytes, its position
// is marked as cut unless the limit is that of a turn, and an error event reports the first time
// that a session reaches a limit.
func (db *DB) TranscriptAppend(ctx context.Context, segments []transcript.Segment) error {
	bySession := map[string][]transcript.Segment{}
	var order []string
	for _, segment := range segments {
		if _, ok := bySession[segment.SessionID]; !ok {
			order = append(order, segment.SessionID)
		}
		bySession[segment.SessionID] = append(bySession[segment.SessionID], segment)
	}
	for _, id := range order {
		var was storedTranscripts
		read := func(in *lookups) error { return was.read(ctx, db.q, in, id, bySession[id]) }
		err := db.inSessionWith(ctx, "append to a transcript", id, read, func(s *sessionTx) error {
			return s.transcriptAppend(ctx, db, db.options.Transcripts, bySession[id], was)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// transcriptTx appends to the transcripts of one session.
type transcriptTx struct {
	*sessionTx
	db      *DB
	limits  transcript.Limits
	at      map[string]*dbsqlc.TranscriptPositionsOfRow
	totals  dbsqlc.TranscriptTotalsRow
	changed map[string]bool // paths whose position has changed
	queued  int             // bytes of rows in later, which are sent when they reach maxTranscriptSegment
}

// storedTranscripts describes the stored files that segments belong to, and all files of their
// session.
type storedTranscripts struct {
	at     []dbsqlc.TranscriptPositionsOfRow
	totals dbsqlc.TranscriptTotalsRow
}

func (t *storedTranscripts) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID string, segments []transcript.Segment) error {
	var paths []string
	for _, segment := range segments {
		if storableTranscript(segment.Path) && !slices.Contains(paths, segment.Path) {
			paths = append(paths, segment.Path)
		}
	}
	var atErr, totalsErr error
	t.at, atErr = q.TranscriptPositionsOf(ctx, in, &dbsqlc.TranscriptPositionsOfParams{SessionID: sessionID, Paths: paths})
	t.totals, totalsErr = q.TranscriptTotals(ctx, in, sessionID)
	if isNoRows(totalsErr) {
		totalsErr = nil
	}
	return cmp.Or(atErr, totalsErr)
}

func (s *sessionTx) transcriptAppend(
	ctx context.Context, db *DB, limits transcript.Limits, segments []transcript.Segment, was storedTranscripts,
) error {
	a := transcriptTx{
		sessionTx: s, db: db, limits: limits, totals: was.totals,
		at: map[string]*dbsqlc.TranscriptPositionsOfRow{}, changed: map[string]bool{},
	}
	for i := range was.at {
		a.at[was.at[i].Path] = &was.at[i]
	}
	for _, segment := range segments {
		if err := a.append(ctx, segment); err != nil {
			return err
		}
	}
	return a.store(ctx)
}

// storableTranscript reports whether a transcript with this path can be stored. Programs in a
// sandbox choose names freely.
func storableTranscript(path string) bool {
	return len(path) <= transcript.MaxPath && utf8.ValidString(path) && strings.IndexByte(path, 0) < 0
}

func (a *transcriptTx) append(ctx context.Context, segment transcript.Segment) error {
	if segment.Offset < 0 {
		return failure.Errorf(failure.Invalid, "a segment of %s starts at %d", segment.Path, segment.Offset)
	}
	if !storableTranscript(segment.Path) {
		return a.exceed(transcript.LimitPath, segment)
	}
	at := a.at[segment.Path]
	switch {
	case at == nil && a.totals.Files >= a.limits.Files:
		return a.exceed(transcript.LimitFiles, segment)
	case at == nil:
		at = &dbsqlc.TranscriptPositionsOfRow{Path: segment.Path, Version: segment.Version}
		a.at[segment.Path] = at
		a.totals.Files++
		a.changed[segment.Path] = true
	case segment.Version < at.Version:
		return nil
	case segment.Version > at.Version:
		a.countFor(segment.RunID)
		if a.totals.Replaced >= a.limits.TurnReplaced {
			return a.exceed(transcript.LimitReplaced, segment) // the stored version stays
		}
		a.totals.Replaced += max(at.Size, transcript.MinReplaced)
		if err := a.sendInserts(ctx); err != nil { // rows of the deleted version
			return err
		}
		err := a.q.TranscriptDeleteOlder(ctx, a, &dbsqlc.TranscriptDeleteOlderParams{
			SessionID: a.row.ID, Path: segment.Path, Version: segment.Version,
		})
		if err != nil {
			return err
		}
		a.totals.Bytes -= at.Size
		*at = dbsqlc.TranscriptPositionsOfRow{Path: segment.Path, Version: segment.Version}
		a.changed[segment.Path] = true
	}
	if at.Cut {
		return nil // the missing data before this segment exceeded a limit
	}
	if segment.Offset > at.Size {
		return illegal("transcript %s has %d bytes, the segment starts at %d", segment.Path, at.Size, segment.Offset)
	}
	fresh := segment.Data
	if have := at.Size - segment.Offset; have > 0 {
		fresh = fresh[min(have, int64(len(fresh))):]
	}
	limit, room := transcript.LimitFile, a.limits.FileBytes-at.Size
	if left := a.limits.SessionBytes - a.totals.Bytes; left < room {
		limit, room = transcript.LimitSession, left
	}
	room = max(0, room)
	isCut := int64(len(fresh)) > room
	if isCut {
		fresh = fresh[:room]
	}
	for piece := range slices.Chunk(fresh, maxTranscriptSegment) {
		if err := a.insert(ctx, at, segment.RunID, piece); err != nil {
			return err
		}
		if a.queued += len(piece); a.queued < maxTranscriptSegment {
			continue
		}
		if err := a.sendInserts(ctx); err != nil {
			return err
		}
	}
	if isCut {
		at.Cut = true
		a.changed[segment.Path] = true
		return a.exceed(limit, segment)
	}
	return nil
}

// countFor resets the counts of a turn if they belong to another one.
func (a *transcriptTx) countFor(runID string) {
	if a.totals.Turn != runID {
		a.totals.Turn, a.totals.Replaced, a.totals.Gaps = runID, 0, 0
	}
}

// TranscriptGap counts a failure of a turn because a segment left a gap, and returns the number of
// failures. Data stored between turns has the turn "".
func (db *DB) TranscriptGap(ctx context.Context, sessionID, runID string) (gaps int, err error) {
	err = db.inSession(ctx, "count a gap in a transcript", sessionID, func(s *sessionTx) error {
		n, err := s.q.TranscriptGapCount(ctx, s, &dbsqlc.TranscriptGapCountParams{SessionID: sessionID, Turn: runID})
		gaps = int(n)
		return err
	})
	return gaps, err
}

// insert adds a row to the end of a file. It is sent with the commit, or by sendInserts.
func (a *transcriptTx) insert(ctx context.Context, at *dbsqlc.TranscriptPositionsOfRow, runID string, data []byte) error {
	err := a.q.TranscriptInsert(ctx, &a.later, &dbsqlc.TranscriptInsertParams{
		SessionID: a.row.ID, Path: at.Path, Version: at.Version, Start: at.Size,
		Size: int64(len(data)), RunID: runID, Data: a.db.pack(a.row.ID, at.Path, data),
	})
	if err != nil {
		return err
	}
	if at.Size == 0 { // replaced an empty segment, which an earlier release may have stored
		at.Segments, at.Loose = 0, 0
	}
	at.Size += int64(len(data))
	at.Segments++
	at.Loose++
	a.totals.Bytes += int64(len(data))
	a.changed[at.Path] = true
	if at.Loose < mergeAfter {
		return nil
	}
	return a.merge(ctx, at)
}

// sendInserts executes the queued inserts.
func (a *transcriptTx) sendInserts(ctx context.Context) error {
	a.queued = 0
	return a.sendLater(ctx)
}

// exceed records that the session has reached a limit, with an event the first time.
func (a *transcriptTx) exceed(limit transcript.Limit, segment transcript.Segment) error {
	if slices.Contains(a.totals.Exceeded, string(limit)) {
		return nil
	}
	a.totals.Exceeded = append(a.totals.Exceeded, string(limit))
	a.changed[""] = true
	reason := map[transcript.Limit]string{
		transcript.LimitFile:    fmt.Sprintf("only the first %d bytes of a transcript file are stored", a.limits.FileBytes),
		transcript.LimitSession: fmt.Sprintf("only %d bytes of transcripts are stored of a session", a.limits.SessionBytes),
		transcript.LimitFiles:   fmt.Sprintf("only %d transcript files are stored of a session", a.limits.Files),
		transcript.LimitPath:    fmt.Sprintf("the path of a transcript file must be UTF-8 of at most %d bytes", transcript.MaxPath),
	}[limit]
	message := fmt.Sprintf("%s: %s; the rest is only kept in the sandbox and its snapshots", conversation.BoundedID(text(segment.Path)), reason)
	if limit == transcript.LimitReplaced {
		message = fmt.Sprintf("%s: a turn can replace %d bytes of transcripts; newer versions are stored with the next turn, or when the session hibernates",
			conversation.BoundedID(text(segment.Path)), a.limits.TurnReplaced)
	}
	return a.add(string(conversation.EventError), segment.RunID, conversation.Problem{Code: transcript.CodeIncomplete, Message: message})
}

// store queues the changed positions, which are sent with the commit.
func (a *transcriptTx) store(ctx context.Context) error {
	if len(a.changed) == 0 {
		return nil
	}
	for path := range a.changed {
		at := a.at[path]
		if at == nil {
			continue
		}
		err := a.q.TranscriptPositionSet(ctx, &a.later, &dbsqlc.TranscriptPositionSetParams{
			SessionID: a.row.ID, Path: path, Version: at.Version, Size: at.Size, Segments: at.Segments, Loose: at.Loose, Cut: at.Cut,
		})
		if err != nil {
			return err
		}
	}
	if a.totals.Exceeded == nil {
		a.totals.Exceeded = []string{}
	}
	return a.q.TranscriptTotalsSet(ctx, &a.later, &dbsqlc.TranscriptTotalsSetParams{
		SessionID: a.row.ID, Files: a.totals.Files, Bytes: a.totals.Bytes, Exceeded: a.totals.Exceeded,
		Turn: a.totals.Turn, Replaced: a.totals.Replaced, Gaps: a.totals.Gaps,
	})
}

const (
	// maxTranscriptSegment bounds the bytes of a row.
	maxTranscriptSegment = 1 << 20
	// mergeAfter is the number of rows after which those added to a file are merged.
	mergeAfter = 16
	// maxTail bounds the rows that one merge reads. Each merged row is at least twice as large as
	// the next one, so fewer rows than this are smaller than maxTranscriptSegment.
	maxTail = mergeAfter + 32
)

// merge replaces the newest rows of a file by fewer ones: the loose rows, and the rows before them
// that are at most twice as large as all later ones together. A merged row has at most
// maxTranscriptSegment bytes. Of two adjacent rows, either the first is more than twice as large as
// the second or they do not fit into one row, so a file of n bytes has at most
// 2n/maxTranscriptSegment rows, plus about forty. A byte is rewritten when its row has grown by
// half: about ten times if an agent writes a few hundred bytes at a time.
//
// It holds the bytes of one merged row in memory. Rows that this process cannot read stay
// unchanged.
func (a *transcriptTx) merge(ctx context.Context, at *dbsqlc.TranscriptPositionsOfRow) error {
	if err := a.sendInserts(ctx); err != nil {
		return err
	}
	tail, err := a.q.TranscriptTail(ctx, a, &dbsqlc.TranscriptTailParams{
		SessionID: a.row.ID, Path: at.Path, Version: at.Version, MaxItems: maxTail,
	})
	if err != nil {
		return err
	}
	sizes := make([]int64, len(tail))
	for i, row := range tail {
		sizes[i] = row.Size
	}
	for _, group := range mergeable(sizes, int(at.Loose)) {
		merged, err := a.mergeRows(ctx, at, tail[group.from:group.to])
		if err != nil {
			return err
		}
		if merged {
			at.Segments -= int64(group.to - group.from - 1)
		}
	}
	at.Loose = 0
	return nil
}

// span is a range of rows, newest first.
type span struct{ from, to int }

// mergeable returns which rows of a tail become one. sizes begins with the newest row; the first
// loose rows have never been merged.
func mergeable(sizes []int64, loose int) []span {
	var out []span
	for i := 0; i < min(loose, len(sizes)); {
		end, sum := i+1, sizes[i]
		for end < len(sizes) && sum+sizes[end] <= maxTranscriptSegment && (end < loose || sizes[end] <= 2*sum) {
			sum += sizes[end]
			end++
		}
		if end-i > 1 {
			out = append(out, span{i, end})
		}
		i = end
	}
	return out
}

// mergeRows merges adjacent rows into one. It returns false if one of them cannot be read.
func (a *transcriptTx) mergeRows(ctx context.Context, at *dbsqlc.TranscriptPositionsOfRow, rows []dbsqlc.TranscriptTailRow) (bool, error) {
	newest, oldest := rows[0], rows[len(rows)-1]
	var data []byte
	var runID string
	for _, row := range slices.Backward(rows) {
		stored, err := a.q.TranscriptSegmentAt(ctx, a, &dbsqlc.TranscriptSegmentAtParams{
			SessionID: a.row.ID, Path: at.Path, Version: at.Version, Position: row.Start,
		})
		if err != nil {
			return false, err
		}
		grown, err := a.db.unpack(a.row.ID, at.Path, stored.Data, data)
		if err == nil && int64(len(grown)) != row.Start+row.Size-oldest.Start {
			err = fmt.Errorf("the rows up to %d have %d bytes", row.Start+row.Size, len(grown))
		}
		if err != nil {
			a.db.logger.WarnContext(ctx, "segments of a transcript are not merged", slog.String("session_id", a.row.ID),
				slog.String("path", at.Path), slog.Any("error", err))
			return false, nil
		}
		data, runID = grown, stored.RunID
	}
	err := a.q.TranscriptDeleteSegments(ctx, a, &dbsqlc.TranscriptDeleteSegmentsParams{
		SessionID: a.row.ID, Path: at.Path, Version: at.Version, First: oldest.Start, Last: newest.Start,
	})
	if err != nil {
		return false, err
	}
	return true, a.q.TranscriptInsert(ctx, a, &dbsqlc.TranscriptInsertParams{
		SessionID: a.row.ID, Path: at.Path, Version: at.Version, Start: oldest.Start,
		Size: int64(len(data)), RunID: runID, Data: a.db.pack(a.row.ID, at.Path, data),
	})
}

// TranscriptPositions returns how much of each file is stored, by path; session_not_found if the
// session does not exist.
func (db *DB) TranscriptPositions(ctx context.Context, sessionID string) ([]transcript.Position, error) {
	positions, err := transcriptPositions(ctx, db.q, db.pool, sessionID)
	if err == nil && len(positions) == 0 {
		_, err = db.EventsPosition(ctx, sessionID)
		return positions, err
	}
	return positions, fault("read transcript positions", err)
}

func transcriptPositions(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, sessionID string) ([]transcript.Position, error) {
	rows, err := q.TranscriptPositions(ctx, tx, sessionID)
	if err != nil {
		return nil, err
	}
	out := make([]transcript.Position, len(rows))
	for i, row := range rows {
		out[i] = transcript.Position(row)
	}
	return out, nil
}

// TranscriptLimitsReached returns the limits that prevented transcripts of a session from being
// stored completely.
func (db *DB) TranscriptLimitsReached(ctx context.Context, sessionID string) ([]transcript.Limit, error) {
	totals, err := db.q.TranscriptTotals(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fault("read transcript limits", err)
	}
	var out []transcript.Limit
	for _, limit := range totals.Exceeded {
		out = append(out, transcript.Limit(limit))
	}
	return out, nil
}

// TranscriptContent reads the bytes of a file up to a position in pieces of at most 1 MiB, of which
// it holds one in memory. A piece is valid until the next one. The content of a version never
// changes, so no lock or transaction is held between pieces. It returns illegal_state if the
// version is replaced meanwhile.
func (db *DB) TranscriptContent(ctx context.Context, sessionID string, p transcript.Position) iter.Seq2[[]byte, error] {
	return db.TranscriptFrom(ctx, sessionID, p, 0)
}

// TranscriptFrom is TranscriptContent from an offset.
func (db *DB) TranscriptFrom(ctx context.Context, sessionID string, p transcript.Position, from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var buffer []byte
		for offset := from; offset < p.Size; {
			piece, err := db.transcriptPiece(ctx, sessionID, p, offset, &buffer)
			if err != nil {
				yield(nil, fault("read a transcript", err))
				return
			}
			offset += int64(len(piece))
			if !yield(piece, nil) {
				return
			}
		}
	}
}

// transcriptPiece returns the bytes from an offset to the end of the row that contains it.
func (db *DB) transcriptPiece(ctx context.Context, sessionID string, p transcript.Position, offset int64, buffer *[]byte) ([]byte, error) {
	row, err := db.q.TranscriptSegmentAt(ctx, db.pool, &dbsqlc.TranscriptSegmentAtParams{
		SessionID: sessionID, Path: p.Path, Version: p.Version, Position: offset,
	})
	if isNoRows(err) {
		return nil, illegal("version %d of transcript %s is no longer stored", p.Version, p.Path)
	}
	if err != nil {
		return nil, err
	}
	if *buffer, err = db.unpack(sessionID, p.Path, row.Data, (*buffer)[:0]); err != nil {
		return nil, err
	}
	skip := offset - row.Start
	if skip >= int64(len(*buffer)) {
		return nil, failure.Errorf(failure.Internal, "transcript %s: byte %d of version %d is missing", p.Path, offset, p.Version)
	}
	return (*buffer)[skip:min(int64(len(*buffer)), skip+p.Size-offset)], nil
}
