package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// keepDeleted bounds the deleted files that a session remembers.
const keepDeleted = 1000

// codeWorkspaceTooLarge is the code of the error event for workspacefile.MaxWatched.
const codeWorkspaceTooLarge = "workspace_too_large"

// fileCursor is the last file of a page.
type fileCursor struct {
	Path string `json:"p"`
}

// FilesAppend stores changes in a workspace, with a file event for each change that is visible to
// readers. Changes that are already stored, by lineage and seq, are skipped; an unknown lineage
// starts from the beginning. It returns eventlog.ErrFenced if a newer generation or attempt has the
// session, or if the run or the session has ended.
//
// The sandbox is not trusted: content beyond the bounds is omitted; files beyond
// workspacefile.MaxWatched and paths that lead outside the workspace are not stored.
func (db *DB) FilesAppend(ctx context.Context, b workspacefile.Batch) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	fenced := false
	budget := b.Budget
	err := db.inSession(ctx, "store files", b.SessionID, func(s *sessionTx) error {
		s.from = inTurn
		var err error
		if fenced, err = s.fenced(ctx, b.RunID, b.Token, b.Generation); err != nil || fenced {
			return err
		}
		left := workspacefile.Budget{Bytes: math.MaxInt64, Events: math.MaxInt64}
		if b.Budget != nil {
			left = *b.Budget
		}
		budget = &left
		return s.filesAppend(ctx, db, b, budget)
	})
	if err == nil && fenced {
		return eventlog.ErrFenced
	}
	if err == nil && b.Budget != nil {
		*b.Budget = *budget
	}
	return err
}

// fenced reports whether a writer with this run, token and generation has been replaced.
func (s *sessionTx) fenced(ctx context.Context, runID, token string, generation int64) (bool, error) {
	if s.row.Generation > generation || session.State(s.row.Status).Final() {
		return true, nil
	}
	if runID == "" {
		return false, nil
	}
	run, err := s.q.RunGet(ctx, s, runID)
	if isNoRows(err) || err == nil && run.SessionID != s.row.ID {
		return false, noRun(runID)
	}
	return run.EndedAt != nil || token == "" || run.Token != token, err
}

func (s *sessionTx) filesAppend(ctx context.Context, db *DB, b workspacefile.Batch, budget *workspacefile.Budget) error {
	w, err := s.q.WorkspaceCounts(ctx, s, &dbsqlc.WorkspaceCountsParams{SessionID: s.row.ID, WithDiff: b.Diff != nil})
	if err != nil && !isNoRows(err) {
		return err
	}
	if b.Lineage != "" && b.Lineage != w.Lineage {
		w.Lineage, w.Seq, w.Base = text(b.Lineage), 0, text(b.Base)
	}
	var fresh []workspacefile.Change
	for _, c := range b.Changes {
		if c.Seq > w.Seq && storablePath(c.Path) {
			fresh = append(fresh, c)
		}
	}
	if err := s.filesWrite(ctx, db, &w, b.RunID, fresh, b.Mask, budget); err != nil {
		return err
	}
	if b.BoundedSeq > w.Seq && !budget.TooLarge {
		budget.TooLarge = true
		err := s.add(string(conversation.EventError), b.RunID, conversation.Problem{
			Code:    codeWorkspaceTooLarge,
			Message: fmt.Sprintf("the workspace has more than %d files; those beyond are not watched", workspacefile.MaxWatched),
		})
		if err != nil {
			return err
		}
	}
	for _, c := range b.Changes {
		w.Seq = max(w.Seq, c.Seq)
	}
	w.Seq = max(w.Seq, b.BoundedSeq)
	put := &dbsqlc.WorkspacePutParams{
		SessionID: s.row.ID, Lineage: w.Lineage, Seq: w.Seq, Base: w.Base, Files: w.Files, SavedBytes: w.SavedBytes, UpdatedAt: s.now,
	}
	if b.Diff != nil {
		d := *b.Diff
		patch := d.Patch
		d.Patch = nil
		if put.Diff, err = json.Marshal(d); err != nil {
			return err
		}
		put.Diff, put.DiffKey = storable(put.Diff), text(d.Key)
		put.Patch = db.zip.EncodeAll(patch[:min(len(patch), workspacefile.MaxPatchBytes)], []byte{})
		if err := s.reportGit(w.Diff, b, budget); err != nil {
			return err
		}
	}
	return s.q.WorkspacePut(ctx, s, put)
}

// reportGit appends an event if the state of the workspace's repository has changed since the
// previous diff.
func (s *sessionTx) reportGit(before string, b workspacefile.Batch, budget *workspacefile.Budget) error {
	if b.Diff.Git == nil || budget.None() {
		return nil
	}
	now := conversation.GitState{
		Branch: boundedRef(b.Diff.Git.Branch), Commit: boundedRef(b.Diff.Git.Head), Dirty: b.Diff.Git.Dirty, Source: conversation.GitOfWorkspace,
	}
	if before != "" {
		was, err := observedGit(before)
		if err != nil {
			return err
		}
		if was != nil && was.Branch == now.Branch && was.Head == now.Commit && was.Dirty == now.Dirty {
			return nil
		}
	}
	if b.Mask != nil {
		now.Branch = b.Mask(now.Branch)
	}
	size, err := s.addSized(string(conversation.EventGitState), b.RunID, now)
	budget.Bytes, budget.Events = budget.Bytes-int64(size), budget.Events-1
	return err
}

// storablePath refuses paths that our runners never send.
func storablePath(p string) bool {
	return p != "" && len(p) <= workspacefile.MaxPath && utf8.ValidString(p) && strings.IndexByte(p, 0) < 0 &&
		!path.IsAbs(p) && path.Clean(p) == p && p != "." && p != ".." && !strings.HasPrefix(p, "../")
}

// storableTime returns a time that JSON can express: t, or the zero time if t cannot be expressed.
func storableTime(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// filesWrite writes changes and their events. If there are several changes of a file, only the
// newest is stored, but each is reported.
func (s *sessionTx) filesWrite(ctx context.Context, db *DB, w *dbsqlc.WorkspaceCountsRow, runID string, changes []workspacefile.Change, mask func(string) string, budget *workspacefile.Budget) error {
	if len(changes) == 0 {
		return nil
	}
	paths := make([]string, len(changes))
	for i, c := range changes {
		paths[i] = c.Path
	}
	rows, err := s.q.FilesSizes(ctx, s, &dbsqlc.FilesSizesParams{SessionID: s.row.ID, Paths: sortedSet(paths)})
	if err != nil {
		return err
	}
	stored := map[string]dbsqlc.FilesSizesRow{}
	for _, row := range rows {
		stored[row.Path] = row
	}
	newest := map[string]workspacefile.Change{}
	for _, c := range changes {
		row, known := stored[c.Path]
		exists := known && !row.Deleted
		switch {
		case c.Kind == workspacefile.Deleted && !exists:
			continue // its creation was never reported
		case c.Kind == workspacefile.Deleted:
		case exists:
			c.Kind = workspacefile.Modified
		default:
			if w.Files >= workspacefile.MaxWatched {
				continue
			}
			c.Kind = workspacefile.Created
		}
		account(w, row, exists, &c)
		stored[c.Path] = dbsqlc.FilesSizesRow{Path: c.Path, Size: c.Size, Unsaved: string(c.Unsaved), Deleted: c.Kind == workspacefile.Deleted}
		newest[c.Path] = c
		if c.Initial {
			continue
		}
		if budget.None() {
			if err := s.filesFull(runID, budget); err != nil {
				return err
			}
			continue
		}
		name := c.Path
		if mask != nil {
			name = mask(name)
		}
		size, err := s.addSized(event.TypeFile, runID, event.FileData{Path: name, Change: c.Kind, Size: c.Size})
		if err != nil {
			return err
		}
		budget.Bytes, budget.Events = budget.Bytes-int64(size), budget.Events-1
	}
	return s.filesPut(ctx, db, newest)
}

// filesPut stores the newest change of each file, by path.
func (s *sessionTx) filesPut(ctx context.Context, db *DB, newest map[string]workspacefile.Change) error {
	put := &dbsqlc.FilesPutParams{SessionID: s.row.ID}
	var gone []string
	for _, p := range slices.Sorted(maps.Keys(newest)) {
		c := newest[p]
		if c.Kind == workspacefile.Deleted {
			gone = append(gone, p)
			continue
		}
		content := []byte{}
		if c.Saved() {
			content = db.zip.EncodeAll(c.Data, content)
		}
		put.Paths = append(put.Paths, p)
		put.Sizes = append(put.Sizes, c.Size)
		put.Sums = append(put.Sums, text(c.SHA256))
		put.Modes = append(put.Modes, int32(c.Mode&0o777))
		put.Modified = append(put.Modified, storableTime(c.ModifiedAt))
		put.Contents = append(put.Contents, content)
		put.Unsaved = append(put.Unsaved, string(c.Unsaved))
	}
	if len(put.Paths) > 0 {
		if err := s.q.FilesPut(ctx, s, put); err != nil {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := s.q.FilesDelete(ctx, s, &dbsqlc.FilesDeleteParams{SessionID: s.row.ID, Paths: gone, At: s.now}); err != nil {
		return err
	}
	return s.q.FilesForget(ctx, s, &dbsqlc.FilesForgetParams{SessionID: s.row.ID, Keep: keepDeleted})
}

// filesFull adds an event the first time that changes exceed the budget of events.
func (s *sessionTx) filesFull(runID string, budget *workspacefile.Budget) error {
	if budget.Full {
		return nil
	}
	budget.Full = true
	return s.add(string(conversation.EventError), runID, conversation.TurnTruncated())
}

// FilesLogged returns the totals of the file events that a run has logged, and the limits that it
// has reached.
func (db *DB) FilesLogged(ctx context.Context, sessionID, runID string) (workspacefile.Logged, error) {
	row, err := db.q.FileEventsOfRun(ctx, db.pool, &dbsqlc.FileEventsOfRunParams{
		SessionID: sessionID, RunID: runID,
		Truncated: problemPrefix(conversation.CodeTurnTruncated), Bounded: problemPrefix(codeWorkspaceTooLarge),
	})
	return workspacefile.Logged{Bytes: row.Bytes, Events: row.Events, Full: row.Truncated, TooLarge: row.Bounded}, fault("sum up file events", err)
}

// problemPrefix is the beginning of the data of an error event with a code.
func problemPrefix(code string) string { return `{"code":"` + code + `"` }

// account counts a change, and drops its content if it exceeds the budget.
func account(w *dbsqlc.WorkspaceCountsRow, row dbsqlc.FilesSizesRow, exists bool, c *workspacefile.Change) {
	if exists {
		w.Files--
		if row.Unsaved == "" {
			w.SavedBytes -= row.Size
		}
	}
	if c.Kind == workspacefile.Deleted {
		c.Info, c.Data = workspacefile.Info{Path: c.Path}, nil
		return
	}
	w.Files++
	c.Size = max(c.Size, 0)
	switch {
	case c.Unsaved == workspacefile.UnsavedTooLarge, c.Unsaved == workspacefile.UnsavedFull, c.Unsaved == workspacefile.UnsavedUnreadable:
	case len(c.Data) > workspacefile.MaxBytes:
		c.Unsaved = workspacefile.UnsavedTooLarge
	case w.SavedBytes+int64(len(c.Data)) > workspacefile.MaxSavedBytes:
		c.Unsaved = workspacefile.UnsavedFull
	default:
		c.Unsaved, c.Size = "", int64(len(c.Data))
		w.SavedBytes += c.Size
	}
}

func filesPosition(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, sessionID string) (workspacefile.Position, error) {
	p := workspacefile.Position{Session: sessionID}
	row, err := q.WorkspacePosition(ctx, tx, sessionID)
	if isNoRows(err) {
		return p, nil
	}
	p.Lineage, p.Seq, p.Base, p.DiffKey = row.Lineage, row.Seq, row.Base, row.DiffKey
	return p, err
}

// FilesPosition returns how many of the changes in a workspace are stored.
func (db *DB) FilesPosition(ctx context.Context, sessionID string) (workspacefile.Position, error) {
	p, err := filesPosition(ctx, db.q, db.pool, sessionID)
	return p, fault("read the position of a workspace", err)
}

// FilesKnown returns the stored files by path, for a runner without an index.
func (db *DB) FilesKnown(ctx context.Context, sessionID string) ([]workspacefile.Known, error) {
	rows, err := db.q.FilesKnown(ctx, db.pool, sessionID)
	if err != nil {
		return nil, fault("read known files", err)
	}
	out := make([]workspacefile.Known, len(rows))
	for i, row := range rows {
		out[i] = workspacefile.Known{
			Path: row.Path, Size: row.Size, SHA256: row.Sha256, Mode: uint32(row.Mode), Unsaved: workspacefile.Unsaved(row.Unsaved),
		}
	}
	return out, nil
}

// FileList lists the files of a workspace whose path begins with prefix, by path.
func (db *DB) FileList(
	ctx context.Context, sessionID, prefix string, limit int, cursor string,
) (items []workspacefile.Info, nextCursor string, err error) {
	const doing = "list files"
	var from fileCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	rows, err := db.q.FilesList(ctx, db.pool, &dbsqlc.FilesListParams{
		SessionID: sessionID, Prefix: prefix, After: from.Path, MaxItems: int32(limit) + 1,
	})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) == 0 {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return nil, "", err
		}
	}
	if len(rows) > limit {
		rows = rows[:limit]
		nextCursor = cursorEncode(fileCursor{Path: rows[limit-1].Path})
	}
	items = make([]workspacefile.Info, len(rows))
	for i, row := range rows {
		items[i] = fileInfo(row)
	}
	return items, nextCursor, nil
}

func fileInfo(row dbsqlc.FilesListRow) workspacefile.Info {
	return workspacefile.Info{
		Path: row.Path, Size: row.Size, SHA256: row.Sha256, Mode: uint32(row.Mode),
		ModifiedAt: row.ModifiedAt.UTC(), Unsaved: workspacefile.Unsaved(row.Unsaved),
	}
}

// FileGet returns a file of a workspace, with its content if that is stored; file_not_found if the
// file does not exist or is deleted.
func (db *DB) FileGet(ctx context.Context, sessionID, name string) (workspacefile.Content, error) {
	const doing = "read a file"
	row, err := db.q.FileGet(ctx, db.pool, &dbsqlc.FileGetParams{SessionID: sessionID, Path: name})
	if isNoRows(err) {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return workspacefile.Content{}, err
		}
		return workspacefile.Content{}, failure.Errorf(failure.NoFile, "there is no such file in the workspace")
	}
	if err != nil {
		return workspacefile.Content{}, fault(doing, err)
	}
	if row.DeletedAt != nil {
		return workspacefile.Content{}, failure.Errorf(failure.NoFile, "the file was deleted at %s", resource.Time(*row.DeletedAt))
	}
	f, err := db.fileContent(fileInfo(dbsqlc.FilesListRow{
		Path: row.Path, Size: row.Size, Sha256: row.Sha256, Mode: row.Mode, ModifiedAt: row.ModifiedAt, Unsaved: row.Unsaved,
	}), row.Content)
	return f, fault(doing, err)
}

// fileContent unpacks the content of a file, if that is stored.
func (db *DB) fileContent(info workspacefile.Info, packed []byte) (workspacefile.Content, error) {
	f := workspacefile.Content{Info: info}
	if !f.Saved() {
		return f, nil
	}
	var err error
	if f.Data, err = db.unzip.DecodeAll(packed, []byte{}); err != nil {
		return f, failure.Errorf(failure.Internal, "content of %s: %v", f.Path, err)
	}
	return f, nil
}

// DiffGet returns the newest diff of a workspace; nil if none has been taken yet.
func (db *DB) DiffGet(ctx context.Context, sessionID string) (*workspacefile.Diff, error) {
	const doing = "read a diff"
	row, err := db.q.WorkspaceDiff(ctx, db.pool, sessionID)
	if isNoRows(err) {
		_, err := db.SessionGet(ctx, sessionID)
		return nil, err
	}
	if err != nil {
		return nil, fault(doing, err)
	}
	d, err := db.diffOf(sessionID, row.Diff, row.Patch)
	return d, fault(doing, err)
}

// diffOf unpacks a diff; nil if none has been taken.
func (db *DB) diffOf(sessionID, stored string, patch []byte) (*workspacefile.Diff, error) {
	if stored == "" {
		return nil, nil
	}
	var d workspacefile.Diff
	if err := json.Unmarshal([]byte(stored), &d); err != nil {
		return nil, failure.Errorf(failure.Internal, "diff of %s: %v", sessionID, err)
	}
	var err error
	if d.Patch, err = db.unzip.DecodeAll(patch, []byte{}); err != nil {
		return nil, failure.Errorf(failure.Internal, "patch of %s: %v", sessionID, err)
	}
	return &d, nil
}
