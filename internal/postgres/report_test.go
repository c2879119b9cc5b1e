package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// report appends the events of one frame of a run.
func (b *harness) report(t *testing.T, run string, frame int64, events ...eventlog.Draft) {
	t.Helper()
	for i := range events {
		events[i].Frame, events[i].N, events[i].ConversationID = frame, i, ""
	}
	require.NoError(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: frame, Events: events}))
}

// TestNewestReportsAreKept checks that the store keeps the last git state and applies every change
// of the pull request once.
func TestNewestReportsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "work"))
	none, err := b.ReportsGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, conversation.Reports{}, none)
	_, err = b.ReportsGet(b.ctx, session.NewID(session.SessionPrefix))
	requireCode(t, failure.NoSession, err)

	created := draft("pull_request", 0, 0, `{"operation":"create","title":"Fix","branch":"fix","body":"why","state":"draft"}`)
	for range 2 { // the response to the first was lost
		b.report(t, run, 0,
			draft("git_state", 0, 0, `{"branch":"one"}`), draft("git_state", 0, 0, `{"branch":"fix","commit":"c1","commitCount":2,"source":"agent"}`), created,
			draft("pull_request", 0, 0, `{"operation":"update","number":7}`))
	}
	b.report(t, run, 1, draft("pull_request", 0, 0, `{"operation":"update","url":"https://example.com/7","state":"open","title":"The \u0000 fix"}`))
	got, err := b.ReportsGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, conversation.GitState{Branch: "fix", Commit: "c1", CommitCount: 2, Source: "agent"}, got.Git.Value)
	require.Equal(t, conversation.PullRequest{
		Operation: "create", Title: "The \x00 fix", Branch: "fix", Body: "why", Number: 7, URL: "https://example.com/7", State: "open",
	}, got.PullRequest.Value)
	require.Equal(t, []string{run, run}, []string{got.Git.RunID, got.PullRequest.RunID})
	require.Equal(t, created.At.UTC().Truncate(time.Microsecond), got.PullRequest.FirstAt.Truncate(time.Microsecond))
	require.True(t, got.PullRequest.At.After(got.PullRequest.FirstAt))

	b.report(t, run, 2, draft("pull_request", 0, 0, `{"operation":"create","title":"Another","branch":"b2"}`))
	got, err = b.ReportsGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, conversation.PullRequest{Operation: "create", Title: "Another", Branch: "b2"}, got.PullRequest.Value)
	b.report(t, run, 3, draft("pull_request", 0, 0, `7`), draft("git_state", 0, 0, `{"branch":"after a URL that is not a pull request"}`))
	got, err = b.ReportsGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "Another", got.PullRequest.Value.Title)
	require.Equal(t, "after a URL that is not a pull request", got.Git.Value.Branch)
}

func TestScreenshotsAreListedInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "draw"))
	for i := range int64(5) {
		b.report(t, run, i, draft("screenshot", 0, 0, fmt.Sprintf(`{"image":{"id":"att_%d","mediaType":"image/png","bytes":70},"description":"shot %d"}`, i, i)))
	}
	var shown []string
	for cursor := ""; ; {
		page, next, err := b.ScreenshotList(b.ctx, b.id, 2, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 2)
		for _, s := range page {
			require.Equal(t, run, s.RunID)
			require.EqualValues(t, 70, s.Image.Bytes)
			require.Positive(t, s.Seq)
			shown = append(shown, s.Description)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, []string{"shot 4", "shot 3", "shot 2", "shot 1", "shot 0"}, shown)
	_, _, err := b.ScreenshotList(b.ctx, b.id, 2, "x")
	requireCode(t, failure.Invalid, err)
	_, _, err = b.ScreenshotList(b.ctx, session.NewID(session.SessionPrefix), 2, "")
	requireCode(t, failure.NoSession, err)

	large := strings.Repeat("x", 400_000)
	for i := range int64(4) {
		b.report(t, run, 5+i, draft("screenshot", 0, 0, `{"image":{"id":"att_1","mediaType":"image/png","bytes":1},"description":"`+large+`"}`))
	}
	page, next, err := b.ScreenshotList(b.ctx, b.id, 50, "")
	require.NoError(t, err)
	require.Len(t, page, 3, "a page ends at 1 MiB")
	require.NotEmpty(t, next)
}

// TestStateOfRepositoryIsReportedWhenItChanges checks that the report is committed with the diff,
// within the budget of events.
func TestStateOfRepositoryIsReportedWhenItChanges(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.Mask = func(s string) string { return strings.ReplaceAll(s, "secret", "[redacted]") }
	at := b.position(t)
	take := func(g *workspacefile.GitState) {
		batch.Diff = &workspacefile.Diff{Key: session.NewID(""), Base: "c0", Files: []workspacefile.Delta{{Path: "a\x00"}}, Git: g, At: time.Unix(1000, 0).UTC()}
		require.NoError(t, b.FilesAppend(b.ctx, batch))
	}
	observed := func() *conversation.ObservedGit {
		g, err := b.WorkspaceGit(b.ctx, b.id)
		require.NoError(t, err)
		return g
	}
	require.Nil(t, observed(), "none was taken yet")
	take(nil)
	require.Nil(t, observed(), "no repository")
	take(&workspacefile.GitState{Branch: "secret/1", Head: "h1", Dirty: true})
	require.Equal(t, &conversation.ObservedGit{Branch: "secret/1", Head: "h1", Dirty: true, Base: "c0", At: time.Unix(1000, 0).UTC()}, observed())
	take(&workspacefile.GitState{Branch: "secret/1", Head: "h1", Dirty: true})
	take(&workspacefile.GitState{Head: "h2"})
	take(&workspacefile.GitState{Branch: strings.Repeat("ä", 300)})
	require.Len(t, []rune(observed().Branch), 255)
	batch.Budget = &workspacefile.Budget{}
	take(&workspacefile.GitState{Branch: "beyond"})
	require.Equal(t, "beyond", observed().Branch)
	var events []string
	for _, e := range b.events(t) {
		if e.Seq > at {
			require.Equal(t, "git_state", e.Type)
			require.Equal(t, batch.RunID, e.RunID)
			var d conversation.GitState
			require.NoError(t, json.Unmarshal(e.Data, &d))
			require.Equal(t, conversation.GitOfWorkspace, d.Source)
			events = append(events, fmt.Sprintf("%.14s %s %t", d.Branch, d.Commit, d.Dirty))
		}
	}
	require.Equal(t, []string{"[redacted]/1 h1 true", " h2 false", strings.Repeat("ä", 14) + "  false"}, events)
	got, err := b.ReportsGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, got.Git, "it is not from the agent")
}
