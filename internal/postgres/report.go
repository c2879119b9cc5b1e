package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// reportBatch stores the reports of agents in a batch of appends, together with the events: the
// newest git state, the updated pull request, and every screenshot.
type reportBatch struct {
	sessionIDs []string // sessions with events of pull requests
	put        map[reportKey]dbsqlc.SessionReport
	shots      dbsqlc.ScreenshotsPutParams
}

type reportKey struct{ sessionID, kind string }

func newReportBatch(appends []eventlog.Append) *reportBatch {
	b := &reportBatch{put: map[reportKey]dbsqlc.SessionReport{}}
	for _, a := range appends {
		if slices.ContainsFunc(a.Events, func(d eventlog.Draft) bool { return d.Type == string(conversation.EventPullRequest) }) {
			b.sessionIDs = append(b.sessionIDs, a.SessionID)
		}
	}
	return b
}

// before maps sessions to their stored pull requests.
type before map[string]dbsqlc.SessionReport

// read queries nothing if no append reports a pull request, which is nearly always.
func (b *reportBatch) read(ctx context.Context, q *dbsqlc.Queries, in *lookups) (before, error) {
	if len(b.sessionIDs) == 0 {
		return nil, nil
	}
	rows, err := q.ReportsFind(ctx, in, &dbsqlc.ReportsFindParams{SessionIds: sortedSet(b.sessionIDs), Kind: string(conversation.EventPullRequest)})
	found := make(before, len(rows))
	for _, row := range rows {
		found[row.SessionID] = row
	}
	return found, err
}

// add adds the report of an event. It ignores data that does not match the event's type; the event
// is in the log nevertheless.
func (b *reportBatch) add(stored before, sessionID, runID string, row eventRow, data json.RawMessage) {
	report := dbsqlc.SessionReport{SessionID: sessionID, Kind: row.Type, Data: string(data), RunID: runID, FirstAt: row.At, At: row.At}
	key := reportKey{sessionID, row.Type}
	switch conversation.EventType(row.Type) {
	case conversation.EventScreenshot:
		b.shots.SessionIds, b.shots.Seqs = append(b.shots.SessionIds, sessionID), append(b.shots.Seqs, row.Seq)
		b.shots.Datas, b.shots.RunIds, b.shots.Ats = append(b.shots.Datas, string(data)), append(b.shots.RunIds, runID), append(b.shots.Ats, row.At)
	case conversation.EventGitState:
		b.put[key] = report
	case conversation.EventPullRequest:
		earlier, known := b.put[key]
		if !known {
			earlier, known = stored[sessionID]
		}
		var change, existing conversation.PullRequest
		if json.Unmarshal(data, &change) != nil {
			return
		}
		if known && change.Operation == conversation.PullRequestUpdate && json.Unmarshal([]byte(earlier.Data), &existing) == nil {
			merged, err := json.Marshal(existing.With(change))
			if err != nil {
				return
			}
			report.Data, report.FirstAt = string(merged), earlier.FirstAt
		}
		b.put[key] = report
	default:
	}
}

func (b *reportBatch) flush(ctx context.Context, q *dbsqlc.Queries, out *pipeline) error {
	if len(b.shots.Seqs) > 0 {
		if err := q.ScreenshotsPut(ctx, out, &b.shots); err != nil {
			return err
		}
	}
	if len(b.put) == 0 {
		return nil
	}
	var put dbsqlc.ReportsPutParams
	for _, key := range slices.SortedFunc(maps.Keys(b.put), func(x, y reportKey) int {
		return cmp.Or(cmp.Compare(x.sessionID, y.sessionID), cmp.Compare(x.kind, y.kind))
	}) {
		r := b.put[key]
		put.SessionIds, put.Kinds, put.Datas = append(put.SessionIds, r.SessionID), append(put.Kinds, r.Kind), append(put.Datas, r.Data)
		put.RunIds, put.FirstAts, put.Ats = append(put.RunIds, r.RunID), append(put.FirstAts, r.FirstAt), append(put.Ats, r.At)
	}
	return q.ReportsPut(ctx, out, &put)
}

// ReportsGet returns the latest reports of the agent of a session.
func (db *DB) ReportsGet(ctx context.Context, sessionID string) (conversation.Reports, error) {
	const doing = "read reports"
	var reports conversation.Reports
	rows, err := db.q.ReportsGet(ctx, db.pool, sessionID)
	if err != nil {
		return reports, fault(doing, err)
	}
	if len(rows) == 0 {
		_, err := db.SessionGet(ctx, sessionID)
		return reports, err
	}
	for _, row := range rows {
		var into any
		switch conversation.EventType(row.Kind) {
		case conversation.EventGitState:
			reports.Git = &conversation.Reported[conversation.GitState]{RunID: row.RunID, FirstAt: row.FirstAt.UTC(), At: row.At.UTC()}
			into = &reports.Git.Value
		case conversation.EventPullRequest:
			reports.PullRequest = &conversation.Reported[conversation.PullRequest]{RunID: row.RunID, FirstAt: row.FirstAt.UTC(), At: row.At.UTC()}
			into = &reports.PullRequest.Value
		default:
			continue // from a later release
		}
		if err := json.Unmarshal([]byte(row.Data), into); err != nil {
			return reports, fault(doing, failure.Errorf(failure.Internal, "%s of %s: %v", row.Kind, sessionID, err))
		}
	}
	return reports, nil
}

// screenshotCursor is the last screenshot of a page; screenshots are listed newest first.
type screenshotCursor struct {
	Seq int64 `json:"s"`
}

// ScreenshotList returns a page of the images that the agent of a session has shown, newest first.
func (db *DB) ScreenshotList(ctx context.Context, sessionID string, limit int, cursor string) (items []conversation.Shown, nextCursor string, err error) {
	const doing = "list screenshots"
	from := screenshotCursor{Seq: math.MaxInt64}
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	rows, err := db.q.ScreenshotList(ctx, db.pool, &dbsqlc.ScreenshotListParams{SessionID: sessionID, Before: from.Seq, MaxItems: int32(limit) + 1})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) == 0 {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return nil, "", err
		}
	}
	bytes := 0
	for i, row := range rows {
		if bytes += len(row.Data); i+1 == limit && len(rows) > limit || bytes >= maxPageBytes && i+1 < len(rows) {
			rows, nextCursor = rows[:i+1], cursorEncode(screenshotCursor{Seq: row.Seq})
			break
		}
	}
	items = make([]conversation.Shown, len(rows))
	for i, row := range rows {
		items[i] = conversation.Shown{Seq: row.Seq, RunID: row.RunID, At: row.At.UTC()}
		if err := json.Unmarshal([]byte(row.Data), &items[i].Screenshot); err != nil {
			return nil, "", fault(doing, failure.Errorf(failure.Internal, "screenshot %d of %s: %v", row.Seq, sessionID, err))
		}
	}
	return items, nextCursor, nil
}

// WorkspaceGit returns the state of a workspace's repository at its newest diff; nil if there is no
// diff or no repository.
func (db *DB) WorkspaceGit(ctx context.Context, sessionID string) (*conversation.ObservedGit, error) {
	const doing = "read the state of a repository"
	data, err := db.q.WorkspaceDiffHead(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return nil, nil
	}
	if err != nil || data == "" {
		return nil, fault(doing, err)
	}
	return observedGit(data)
}

// observedGit extracts the git state from a stored diff.
func observedGit(diff string) (*conversation.ObservedGit, error) {
	var d struct {
		Base string
		Git  *struct {
			Branch, Head string
			Dirty        bool
		}
		At time.Time
	}
	if err := json.Unmarshal([]byte(diff), &d); err != nil {
		return nil, failure.Errorf(failure.Internal, "stored diff: %v", err)
	}
	if d.Git == nil {
		return nil, nil
	}
	return &conversation.ObservedGit{Branch: boundedRef(d.Git.Branch), Head: boundedRef(d.Git.Head), Dirty: d.Git.Dirty, Base: boundedRef(d.Base), At: d.At}, nil
}

// maxRef bounds names of branches and commits, in characters: sandboxes are not trusted.
const maxRef = 255

func boundedRef(name string) string {
	if runes := []rune(text(name)); len(runes) > maxRef {
		return string(runes[:maxRef])
	}
	return text(name)
}
