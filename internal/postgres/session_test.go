package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSessionRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := session.Session{
		ID: session.NewID(session.SessionPrefix), Agent: "claude-sdk", Profile: "prf_1", Title: "a title",
		Workspace: &session.Workspace{RepoURL: "https://example.com/r.git", Ref: "main"}, ParentID: "ses_p", ForkedFrom: "ses_f",
		IdleTimeout: 1500 * time.Millisecond, Metadata: json.RawMessage(`{"b":1,"a":"\u0000"}`), Options: session.Options{Model: "m"},
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	made, created, err := b.SessionCreate(b.ctx, want, nil, session.Idempotency{})
	require.NoError(t, err)
	require.True(t, created)
	want.Status, want.LastActivity = session.Initializing, want.CreatedAt
	want.Metrics.CostUSD = new(0.0)
	require.Equal(t, want, made)
	got, err := b.SessionGet(b.ctx, want.ID)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, _, err = b.SessionCreate(b.ctx, want, nil, session.Idempotency{})
	requireCode(t, failure.IllegalState, err)
	_, err = b.SessionGet(b.ctx, "ses_nobody")
	requireCode(t, failure.NoSession, err)
}

func TestSessionStartsWithPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := session.NewID(session.SessionPrefix)
	made, _, err := b.SessionCreate(b.ctx, session.Session{ID: id, Agent: "demo"}, &session.Prompt{ID: "first", Content: "hi"}, session.Idempotency{})
	require.NoError(t, err)
	require.Equal(t, session.QueueCounts{Queued: 1}, made.Queue)
	p, err := b.PromptGet(b.ctx, id, "first")
	require.NoError(t, err)
	require.EqualValues(t, 1, p.Ordinal)
	require.Equal(t, session.Followup, p.Mode)
	require.Equal(t, session.Hold, p.OnUnknown)
	b.id = id
	require.Equal(t, []string{"prompt", "queue", "title"}, b.types(t, 0))
	require.Equal(t, "hi", made.Title)
	titled, _, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Title: "mine"}, &session.Prompt{ID: "first", Content: "hi"}, session.Idempotency{})
	require.NoError(t, err)
	require.Equal(t, "mine", titled.Title)
	second := b.submit(t, "later words")
	require.NotEmpty(t, second)
	shown, err := b.SessionGet(b.ctx, id)
	require.NoError(t, err)
	require.Equal(t, "hi", shown.Title, "the first prompt's")
}

func TestIdempotencyKeyMakesOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	idem := session.Idempotency{Key: "k", Digest: "d"}
	ids := make(chan string, 8)
	var all sync.WaitGroup
	made := make(chan bool, 8)
	for range 8 {
		all.Go(func() {
			s, created, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"},
				&session.Prompt{ID: "p", Content: "hi"}, idem)
			if err == nil {
				ids <- s.ID
				made <- created
			}
		})
	}
	all.Wait()
	close(ids)
	close(made)
	first, count, creations := "", 0, 0
	for id := range ids {
		if first == "" {
			first = id
		}
		require.Equal(t, first, id)
		count++
	}
	for created := range made {
		if created {
			creations++
		}
	}
	require.Equal(t, 8, count)
	require.Equal(t, 1, creations)
	_, _, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{Key: "k", Digest: "other"})
	requireCode(t, failure.Idempotency, err)
}

func TestIdempotencyKeyIsForgottenAfterDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func() (string, bool) {
		s, created, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{Key: "k", Digest: "d"})
		require.NoError(t, err)
		return s.ID, created
	}
	first, _ := create()
	b.sql(t, "UPDATE idempotency_keys SET created_at = now() - interval '23 hours 59 minutes'")
	again, created := create()
	require.False(t, created)
	require.Equal(t, first, again)
	b.sql(t, "UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 minute'")
	later, created := create()
	require.True(t, created)
	require.NotEqual(t, first, later)
}

func TestSessionsAreListedNewestFirstPageByPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begin := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	var want []string
	for i := range 7 {
		s, _, err := b.SessionCreate(b.ctx, session.Session{
			ID: session.NewID(session.SessionPrefix), Agent: "paged", Title: fmt.Sprintf("No. %d", i),
			CreatedAt: begin.Add(time.Duration(i/2) * time.Second), // each pair has the same time
		}, nil, session.Idempotency{})
		require.NoError(t, err)
		want = append([]string{s.ID}, want...)
	}
	var got []string
	cursor := ""
	for pages := 1; ; pages++ {
		items, next, err := b.SessionList(b.ctx, listing.Filter{Agent: "paged", Limit: 3, Cursor: cursor})
		require.NoError(t, err)
		for _, s := range items {
			got = append(got, s.ID)
		}
		if next == "" {
			require.Equal(t, 3, pages)
			break
		}
		cursor = next
	}
	require.Equal(t, want, got)
	_, _, err := b.SessionList(b.ctx, listing.Filter{Cursor: "not a cursor"})
	requireCode(t, failure.Invalid, err)
}

func TestSessionsAreFoundByTitleOrID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, title := range []string{"100% Sure", "100 percent", `back\slash`, "under_score", "underscore"} {
		_, _, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Title: title}, nil, session.Idempotency{})
		require.NoError(t, err)
	}
	find := func(q string) []string {
		items, _, err := b.SessionList(b.ctx, listing.Filter{Query: q})
		require.NoError(t, err)
		titles := []string{}
		for _, s := range items {
			titles = append(titles, s.Title)
		}
		return titles
	}
	require.Equal(t, []string{"100% Sure"}, find("0% sUR"))
	require.Equal(t, []string{"under_score"}, find("r_s"))
	require.Equal(t, []string{`back\slash`}, find(`k\s`))
	require.Len(t, find(strings.ToUpper(b.id[4:])), 1)
	require.Empty(t, find("nowhere\x00"))

	b.running(t)
	items, _, err := b.SessionList(b.ctx, listing.Filter{Status: session.Running})
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, b.id, items[0].ID)
}

func TestPatchChangesOnlyGivenFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("new title")})
	require.NoError(t, err)
	require.Equal(t, "new title", s.Title)
	require.JSONEq(t, `{}`, string(s.Metadata))
	s, err = b.SessionPatch(b.ctx, b.id, session.Patch{
		Metadata: json.RawMessage(`{"a":1}`), IdleTimeout: new(time.Minute), Options: &session.Options{Model: "m2"},
	})
	require.NoError(t, err)
	require.Equal(t, "new title", s.Title)
	require.JSONEq(t, `{"a":1}`, string(s.Metadata))
	require.Equal(t, time.Minute, s.IdleTimeout)
	require.Equal(t, "m2", s.Options.Model)
	require.Equal(t, []string{"title", "settings"}, b.types(t, 0))
	_, err = b.SessionPatch(b.ctx, "ses_nobody", session.Patch{})
	requireCode(t, failure.NoSession, err)
	_, err = b.SessionPatch(b.ctx, b.id, session.Patch{IdleTimeout: new(-time.Second)})
	requireCode(t, failure.Invalid, err)
	_, err = b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("a\x00b")})
	requireCode(t, failure.Invalid, err)
}

func TestOpenReturnsWorkInProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second, third := b.submit(t, "1"), b.submit(t, "2"), b.submit(t, "3")
	run := b.begin(t, first)
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.True(t, loaded.Loaded)
	require.Equal(t, []session.QueuedPrompt{{ID: second, Ordinal: 2}, {ID: third, Ordinal: 3}}, loaded.Waiting)
	require.Equal(t, &session.Processing{PromptID: first, Ordinal: 1, RunID: run, Generation: 1, Dispatch: 2, OnUnknown: session.Hold}, loaded.Processing)
	require.Nil(t, loaded.Head)
	require.Equal(t, "sb-1", loaded.SandboxID)
	require.False(t, loaded.Deadline.IsZero())
	require.Equal(t, session.QueueCounts{Queued: 2, Processing: 1}, loaded.Queue)

	require.NoError(t, b.SessionClose(b.ctx, b.id))
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.False(t, s.Loaded)
	_, err = b.SessionOpen(b.ctx, "ses_nobody", "w1")
	requireCode(t, failure.NoSession, err)
}

func TestWorkspaceIsChangeableBeforeFirstSandboxAndInError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	patch := func(ws session.Workspace) error {
		_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Workspace: &ws})
		return err
	}
	workspace := func() *session.Workspace {
		t.Helper()
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s.Workspace
	}
	changed := func() (out []bool) {
		t.Helper()
		rows, err := b.SandboxesOpen(b.ctx, b.id)
		require.NoError(t, err)
		for _, row := range rows {
			out = append(out, row.WorkspaceChanged)
		}
		return out
	}
	first := session.Workspace{RepoURL: "https://example.com/r.git", Ref: "main", Setup: "make"}
	require.NoError(t, patch(first))
	require.Equal(t, &first, workspace())
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "image"))
	requireCode(t, failure.WorkspaceUsed, patch(session.Workspace{}))
	b.transit(t, session.EventFail, "no such repository")
	require.Equal(t, []bool{false}, changed())

	title := "another"
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: &title})
	require.NoError(t, err)
	require.Equal(t, &first, workspace(), "not given, not changed")
	require.Equal(t, []bool{false}, changed())
	require.NoError(t, patch(session.Workspace{Setup: "true"}))
	require.Equal(t, &session.Workspace{Setup: "true"}, workspace())
	require.Equal(t, []bool{true}, changed(), "its clone is of the earlier settings")
	require.NoError(t, patch(session.Workspace{}))
	require.Nil(t, workspace())
	b.transit(t, session.EventRecover, session.ReasonRequested)
	requireCode(t, failure.WorkspaceUsed, patch(first))
}

func TestEveryChangeOfSettingsIsEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	title, profile, timeout := "t", "prf_x@2", time.Minute
	for _, tt := range []struct {
		patch session.Patch
		kind  string
		data  string
	}{
		{session.Patch{Title: &title}, "title", `{"title": "t"}`},
		{session.Patch{Metadata: json.RawMessage(`{"a": 1}`)}, "settings", `{"metadata": {"a": 1}}`},
		{session.Patch{Options: &session.Options{Model: "m"}}, "settings", `{"options": {"model": "m"}}`},
		{session.Patch{Profile: &profile}, "settings", `{"profile": "prf_x@2"}`},
		{session.Patch{IdleTimeout: &timeout}, "settings", `{"idleTimeout": "1m0s"}`},
		{session.Patch{Workspace: &session.Workspace{Setup: "make"}}, "settings", `{"workspace": {"setup": "make"}}`},
		{session.Patch{Workspace: &session.Workspace{}, Options: &session.Options{}}, "settings", `{"workspace": {}, "options": {}}`},
	} {
		before := b.position(t)
		for range 2 { // the second changes nothing
			_, err := b.SessionPatch(b.ctx, b.id, tt.patch)
			require.NoError(t, err)
		}
		require.Equal(t, []string{tt.kind}, b.types(t, before))
		log := b.events(t)
		require.JSONEq(t, tt.data, string(log[len(log)-1].Data))
	}
}

func TestSessionReportsActivity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doing := func() session.Activity {
		t.Helper()
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		list, _, err := b.SessionList(b.ctx, listing.Filter{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, s.Activity(), list[0].Activity(), "in a list too")
		return s.Activity()
	}
	require.Equal(t, session.NotStarted, doing().State)
	prompt := b.submit(t, "x")
	require.Equal(t, session.StepSandbox, doing().Step)
	require.NoError(t, b.SetupRecord(b.ctx, b.id, session.StepClone, "started"))
	require.Equal(t, session.StepClone, doing().Step)
	require.NoError(t, b.SetupRecord(b.ctx, b.id, session.StepClone, "completed"))
	require.Equal(t, session.StepSandbox, doing().Step)
	require.NoError(t, b.SetupRecord(b.ctx, b.id, session.StepSetup, "started"))
	b.running(t)
	runID := b.begin(t, prompt)
	require.Equal(t, session.Working, doing().State)
	b.sql(t, `UPDATE sessions SET running_since = running_since - interval '1 hour' WHERE id = $1`, b.id)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.InDelta(t, 3600, s.Metrics.ActiveSeconds, 60, "the present stay counts")
	require.Empty(t, s.Step, "a transition ends the step")
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, session.Idle, doing().State)
}

func TestRefusedCreationDoesNotUseItsKeyUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refusal := failure.Errorf(failure.SecretMissing, "not yet")
	idem := session.Idempotency{Key: "k", Digest: "d", Refusal: refusal}
	create := func() (session.Session, bool, error) {
		return b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, idem)
	}
	_, _, err := create()
	require.ErrorIs(t, err, refusal)
	idem.Refusal = nil
	first, created, err := create()
	require.NoError(t, err)
	require.True(t, created)
	idem.Refusal = refusal
	again, created, err := create()
	require.NoError(t, err, "it was answered before")
	require.False(t, created)
	require.Equal(t, first.ID, again.ID)
}

// TestWorkflowGetsOnlyTitlesOfPeople: the content of prompts must not reach Temporal.
func TestWorkflowGetsOnlyTitlesOfPeople(t *testing.T) {
	t.Parallel()
	b := setup(t)
	given := func() string {
		t.Helper()
		loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
		require.NoError(t, err)
		return loaded.GivenTitle
	}
	b.submit(t, "what a prompt says")
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "what a prompt says", s.Title)
	require.Empty(t, given())
	_, err = b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("mine")})
	require.NoError(t, err)
	require.Equal(t, "mine", given())
}
