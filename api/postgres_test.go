package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// setupPostgres is setup over a real database and the real log.
func setupPostgres(t testing.TB) (*harness, *postgres.DB) {
	t.Helper()
	return setupPostgresAt(t, postgrestest.URL(t))
}

func setupPostgresAt(t testing.TB, url string, change ...func(*api.Config)) (*harness, *postgres.DB) {
	t.Helper()
	db := postgrestest.Open(t, url)
	f := eventlog.NewFollower(db, eventlog.FollowerOptions{Format: feed.Format()})
	f.Start()
	t.Cleanup(f.Stop)
	return setup(t, append(change, func(c *api.Config) { c.Store, c.Events = db, feed.Of(f) })...), db
}

func TestPostgresSessionFromCreateToEnd(t *testing.T) {
	t.Parallel()
	b, db := setupPostgres(t)
	body := `{"agent":"demo","title":"Ä","metadata":{"n":1.50,"s":"\u00e4"},"options":{"model":"m"},"idleTimeout":"90s","prompt":{"content":"<first> & \u2028","id":"one"}}`
	made := b.do("POST", "/api/sessions", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, made.status, "%s", made.body)
	id := made.session().ID
	require.EqualValues(t, 1, made.session().Queue.Queued)
	again := b.do("POST", "/api/sessions", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, id, again.session().ID)
	b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Idempotency-Key", "k").problem(http.StatusConflict, "idempotency_conflict")

	path := "/api/sessions/" + id
	two := b.do("POST", path+"/prompts", `{"content":"second","id":"two"}`)
	require.Equal(t, http.StatusAccepted, two.status, "%s", two.body)
	require.EqualValues(t, 2, two.accepted().Prompt.Ordinal)
	require.Equal(t, http.StatusOK, b.do("POST", path+"/prompts", `{"content":"second","id":"two"}`).status)
	b.do("POST", path+"/prompts", `{"content":"other","id":"two"}`).problem(http.StatusConflict, "prompt_conflict")
	b.do("POST", path+"/prompts", `{"content":"second","id":"two","onUnknown":"fail"}`).problem(http.StatusConflict, "prompt_conflict")

	var withdrawn resource.PromptJSON
	b.do("DELETE", path+"/prompts/two", "").into(&withdrawn)
	require.Equal(t, session.PromptCancelled, withdrawn.Status)
	b.do("DELETE", path+"/prompts/two", "").problem(http.StatusConflict, "prompt_not_queued")
	b.do("GET", path+"/prompts/three", "").problem(http.StatusNotFound, "prompt_not_found")

	patched := b.do("PATCH", path, `{"title":"B","metadata":{}}`).session()
	require.Equal(t, "B", patched.Title)
	require.JSONEq(t, `{}`, string(patched.Metadata))
	require.JSONEq(t, `{"conversations":[{"id":"main","blocks":[]}],"seq":8}`, string(b.do("GET", path+"/blocks", "").body))
	require.JSONEq(t, `{"files":[]}`, string(b.do("GET", path+"/transcript", "").body))

	s := b.stream(path + "/events")
	types, last := readUntil(t, s, "caught_up")
	require.Equal(t, []string{"prompt", "queue", "prompt", "queue", "prompt", "queue", "title", "settings", "caught_up"}, types)

	require.NoError(t, db.TransitionRecord(t.Context(), session.Transition{
		SessionID: id, No: 1, From: session.Initializing, To: session.Terminated, Event: session.EventStop,
		Reason: session.ReasonRequested, At: time.Now(),
	}))
	types, _ = readUntil(t, s, "end")
	require.Equal(t, []string{"prompt", "queue", "status", "end"}, types)
	s.ended()
	types, _ = readUntil(t, b.stream(path+"/events", "Last-Event-ID", last), "end")
	require.Equal(t, []string{"prompt", "queue", "status", "caught_up", "end"}, types)

	b.do("POST", path+"/prompts", `{"content":"late"}`).problem(http.StatusConflict, "session_terminated")
	require.Equal(t, http.StatusOK, b.do("POST", path+"/stop", "").status)
	b.do("POST", path+"/wake", "").problem(http.StatusConflict, "session_terminated")
	p := b.do("GET", path+"/events?after=1000", "").problem(http.StatusBadRequest, "invalid_request")
	require.Contains(t, p.Detail, "newest event is 11")
}

// readUntil reads the types of a stream up to one, and the id of the last event.
func readUntil(t *testing.T, s *sse, last string) (types []string, id string) {
	t.Helper()
	for {
		f, ok := s.next()
		require.True(t, ok, "the stream ended after %v", types)
		if f.comment != "" {
			continue
		}
		types = append(types, f.event)
		if f.id != "" {
			id = f.id
		}
		if f.event == last {
			return types, id
		}
	}
}

func TestPostgresPrunedPositionIsGone(t *testing.T) {
	t.Parallel()
	b, db := setupPostgres(t)
	id := b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	for i := range 5 {
		require.Equal(t, http.StatusOK, b.do("PATCH", "/api/sessions/"+id, fmt.Sprintf(`{"title":"t%d"}`, i)).status)
	}
	require.NoError(t, db.EventsPrune(t.Context(), id, 3))
	b.do("GET", "/api/sessions/"+id+"/events?after=1", "").problem(http.StatusGone, "position_gone")
	types, _ := readUntil(t, b.stream("/api/sessions/"+id+"/events?after=3"), "caught_up")
	require.Equal(t, []string{"title", "title", "caught_up"}, types)
}

func TestPostgresStoresEveryAcceptedRequest(t *testing.T) {
	t.Parallel()
	b, _ := setupPostgres(t)
	long := strings.Repeat("x", session.MaxPromptBytes)
	deep := strings.Repeat(`{"a":`, 30) + "1" + strings.Repeat("}", 30)
	for _, body := range []string{
		`{"agent":"demo","metadata":` + deep + `}`,
		`{"agent":"demo","metadata":{"n":[1e308,-1e-400,123456789012345678901234567890,0.1]}}`,
		`{"agent":"demo","metadata":{"":"","ä":"\ud83d\ude00","u":"\ufffe"}}`,
		`{"agent":"demo","metadata":{"lone":"\ud800"}}`,
		`{"agent":"demo","metadata":{"a":"` + strings.Repeat("y", 16<<10-10) + `"}}`,
		`{"agent":"demo","title":"` + strings.Repeat("😀", 200) + `"}`,
		`{"agent":"demo","title":"lone \ud800"}`,
		`{"agent":"demo","idleTimeout":"1s"}`, `{"agent":"demo","idleTimeout":"168h"}`, `{"agent":"demo","idleTimeout":"1h1m1.5s"}`,
		`{"agent":"demo","prompt":{"content":"` + long + `","id":"` + strings.Repeat("_", 64) + `"}}`,
		`{"agent":"demo","options":{}}`,
	} {
		a := b.do("POST", "/api/sessions", body)
		require.Equal(t, http.StatusCreated, a.status, "%.200s: %s", body, a.body)
		got := b.do("GET", "/api/sessions/"+a.session().ID, "")
		require.Equal(t, string(a.session().Metadata), string(got.session().Metadata))
		require.Equal(t, a.session().IdleTimeout, got.session().IdleTimeout)
	}
}

func TestPostgresListsPages(t *testing.T) {
	t.Parallel()
	b, _ := setupPostgres(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, b.do("POST", "/api/sessions", fmt.Sprintf(`{"agent":"demo","title":"50%% of_%d"}`, i)).session().ID)
	}
	type list struct {
		Items      []json.RawMessage
		NextCursor *string
	}
	seen := 0
	for cursor := ""; ; {
		var page list
		b.do("GET", "/api/sessions?limit=2&cursor="+cursor, "").into(&page)
		seen += len(page.Items)
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	require.Equal(t, 5, seen)
	for query, want := range map[string]int{
		"q=%25": 5, "q=OF_3": 1, "q=_": 5, "q=x": 0, "q=" + ids[1]: 1, "status=initializing": 5, "status=running": 0, "agent=demo": 5, "agent=x": 0,
		"sort=-lastActivityAt": 5, "createdSince=2026-01-01T00:00:00Z": 5, "createdBefore=2026-01-01T00:00:00%2B01:00": 0, "metadata[k]=v": 0,
	} {
		var page list
		b.do("GET", "/api/sessions?"+query, "").into(&page)
		require.Len(t, page.Items, want, query)
	}
	for _, cursor := range []string{"x", "AAAA", "%27%3B--", strings.Repeat("A", 1000)} {
		b.do("GET", "/api/sessions?cursor="+cursor, "").problem(http.StatusBadRequest, "invalid_request")
		b.do("GET", "/api/sessions/"+ids[0]+"/prompts?cursor="+cursor, "").problem(http.StatusBadRequest, "invalid_request")
	}
}

func TestPromptsToLockedSessionDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	const wait = 2 * time.Minute
	db, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 4, LockTimeout: wait, CallTimeout: wait, StatementTimeout: wait})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b := setup(t, func(c *api.Config) { c.Store, c.RequestTimeout = db, wait })
	locked := b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	other := b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT FROM sessions WHERE id = $1 FOR UPDATE", locked)
	require.NoError(t, err)

	var all sync.WaitGroup
	answers := make(chan int, 50) // one each
	for range 50 {
		all.Go(func() { answers <- b.do("POST", "/api/sessions/"+locked+"/prompts", `{"content":"x"}`).status })
	}
	for n := range 10 {
		require.Equal(t, http.StatusAccepted, b.do("POST", "/api/sessions/"+other+"/prompts", fmt.Sprintf(`{"content":"%d"}`, n)).status)
		require.Equal(t, http.StatusOK, b.do("GET", "/api/sessions/"+locked, "").status, "reading does not wait")
	}
	require.Empty(t, answers, "the session is still locked")
	_, err = conn.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	all.Wait()
	close(answers)
	for status := range answers {
		require.Equal(t, http.StatusAccepted, status)
	}
}

func TestPromptToLockedSessionIsRefusedAtTimeout(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	db, err := postgres.Open(t.Context(), url, postgres.Options{LockTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b := setup(t, func(c *api.Config) { c.Store = db })
	id := b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT FROM sessions WHERE id = $1 FOR UPDATE", id)
	require.NoError(t, err)
	a := b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"x"}`)
	a.problem(http.StatusServiceUnavailable, "unavailable")
	require.Contains(t, string(a.body), "locked by another transaction")
	require.Equal(t, "1", a.header.Get("Retry-After"))
}
