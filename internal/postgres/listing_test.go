package postgres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// listed is a session as filtered by the test itself.
type listed struct {
	ID, Status, Agent, Title string
	Metadata                 []byte
	Created, Active          time.Time
}

func (s listed) matches(t *testing.T, f listing.Filter) bool {
	t.Helper()
	var metadata map[string]any
	require.NoError(t, json.Unmarshal(s.Metadata, &metadata))
	for _, m := range f.Metadata {
		if value, ok := metadata[m.Key]; !ok || fmt.Sprint(value) != m.Value {
			return false
		}
	}
	found := true
	for _, word := range strings.Fields(strings.ToLower(f.Query)) {
		found = found && strings.Contains(strings.ToLower(s.Title), word)
	}
	query := strings.ToLower(f.Query)
	found = found || query != "" && (strings.HasPrefix(s.ID, query) || strings.HasPrefix(s.ID, "ses_"+query))
	return found &&
		(f.Status == "" || s.Status == string(f.Status)) && (f.Agent == "" || s.Agent == f.Agent) &&
		(f.CreatedSince.IsZero() || !s.Created.Before(f.CreatedSince)) && (f.CreatedBefore.IsZero() || s.Created.Before(f.CreatedBefore))
}

// TestListsOfManySessions fills one database for several tests.
func TestListsOfManySessions(t *testing.T) { //nolint:tparallel // the first counts pages that others would read, the last one changes sessions
	t.Parallel()
	const n = 20000
	url := postgrestest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	fillMany(t, conn, n)
	_, err = conn.Exec(t.Context(), "SELECT pg_stat_force_next_flush()") // reset the statistics of the filling
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	t.Run("ReadBoundedNumberOfPages", func(t *testing.T) { testListReadsBoundedNumberOfPages(t, url, n) }) //nolint:paralleltest // see above
	t.Run("MatchFilters", func(t *testing.T) { testListsMatchFilters(t, url, n) })                         //nolint:paralleltest // see above
	t.Run("EndDespiteShortPages", func(t *testing.T) { testListEndsDespiteShortPages(t, url) })            //nolint:paralleltest // see above
}

// testListsMatchFilters compares lists of many sessions, page by page, with a filter in
// the test, and checks that each statement's plan uses the intended index.
func testListsMatchFilters(t *testing.T, url string, n int) {
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "SELECT id, status, agent, title, metadata, created_at, last_activity_at FROM sessions")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[listed])
	require.NoError(t, err)
	require.Len(t, all, n)
	require.NoError(t, conn.Close(t.Context()))
	db := postgrestest.Open(t, url)
	for _, c := range listCases(n) {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var want []listed
			for _, s := range all {
				if s.matches(t, c.filter) {
					want = append(want, s)
				}
			}
			slices.SortFunc(want, func(a, b listed) int {
				order := cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
				if strings.HasSuffix(string(c.filter.Sort), "lastActivityAt") {
					order = cmp.Or(a.Active.Compare(b.Active), strings.Compare(a.ID, b.ID))
				}
				if c.filter.Sort == "" || strings.HasPrefix(string(c.filter.Sort), "-") {
					order = -order
				}
				return order
			})
			f := c.filter
			f.Limit = 90
			var got []string
			for pages := 0; pages < 6; pages++ {
				page, next, err := db.SessionList(t.Context(), f)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), f.Limit)
				for _, s := range page {
					got = append(got, s.ID)
				}
				if f.Cursor = next; next == "" {
					require.Len(t, got, len(want), "the last page ends the list")
					break
				}
			}
			for i, id := range got {
				require.Equal(t, want[i].ID, id, i)
			}
			if len(got) < len(want) && c.name != "activity of those created long ago" {
				require.Len(t, got, 6*f.Limit, "no page was short")
			}

			for step, plan := range db.ListPlans(t.Context(), t, c.filter) {
				require.NotContains(t, plan, "Seq Scan", step)
				require.NotContains(t, plan, "Hash Join", step)
				if step == "lookup" {
					require.Regexp(t, "Bitmap Index Scan on (sessions_facets|sessions_title_trigrams|sessions_pkey)", plan)
					continue
				}
				require.NotRegexp(t, "\n *->  Sort|^Sort", plan, step)
				require.Regexp(t, map[bool]string{
					true:  "using session_activity_order",
					false: "using (sessions_newest|sessions_status_newest|sessions_agent_newest|sessions_status_agent_newest|session_labels_pkey)",
				}[strings.HasSuffix(string(c.filter.Sort), "lastActivityAt")], plan, step)
			}
		})
	}
}

// testListEndsDespiteShortPages: if no index finds the few matches among very many sessions,
// pages are short.
func testListEndsDespiteShortPages(t *testing.T, url string) {
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "UPDATE sessions SET title = 'zq' WHERE id IN ('ses_' || md5('100'), 'ses_' || md5('19000'))")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	db := postgrestest.Open(t, url)
	found, pages := 0, 0
	f := listing.Filter{Query: "ZQ"}
	for {
		page, next, err := db.SessionList(t.Context(), f)
		require.NoError(t, err)
		found += len(page)
		pages++
		if f.Cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, 2, found)
	require.Equal(t, 3, pages, "each reads a bounded number of sessions")
}

func TestMetadataIsListedUnchanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func(metadata string) string {
		s, _, err := b.SessionCreate(b.ctx, session.Session{
			ID: session.NewID(session.SessionPrefix), Agent: "demo", Metadata: json.RawMessage(metadata),
		}, nil, session.Idempotency{})
		require.NoError(t, err)
		return s.ID
	}
	list := func(pairs ...string) (ids []string) {
		items, _, err := b.SessionList(b.ctx, listing.Filter{Metadata: metadata(pairs...)})
		require.NoError(t, err)
		for _, s := range items {
			ids = append(ids, s.ID)
		}
		return ids
	}
	long := strings.Repeat("long ", 1000)
	one := create(`{"k":"v","n":1.50,"b":true,"null":null,"list":["v"],"object":{"k":"v"},"é:1":"ü:\"","":"empty","long":"` + long + `"}`)
	two := create(`{"k":"v","n":"1.50","kv":"","k:v":"w"}`)
	require.Equal(t, []string{two, one}, list("k", "v"))
	require.Equal(t, []string{two, one}, list("n", "1.50"))
	require.Equal(t, []string{one}, list("b", "true"))
	require.Equal(t, []string{one}, list("é:1", `ü:"`))
	require.Equal(t, []string{one}, list("", "empty"))
	require.Equal(t, []string{one}, list("long", long))
	require.Equal(t, []string{two}, list("kv", ""))
	for _, none := range [][]string{{"k", "V"}, {"n", "1.5"}, {"null", "null"}, {"null", ""}, {"list", "v"}, {"object", "v"}, {"k", "v:w"}, {"k", ":v"}, {"kv", "v"}} {
		require.Empty(t, list(none...), none)
	}
	create(`{"before":"1","lone":"\ud800"}`)
	create(`{"before":"1","\ud800":"1"}`)
	require.Empty(t, list("before", "1"), "a value that no text can be has nothing of its session listed")
	pair := create(`{"before":"1","pair":"\ud83d\ude00"}`)
	require.Equal(t, []string{pair}, list("before", "1", "pair", "😀"))

	_, err := b.SessionPatch(b.ctx, one, session.Patch{Metadata: json.RawMessage(`{"k":"w","b":true}`)})
	require.NoError(t, err)
	require.Equal(t, []string{two}, list("k", "v"))
	require.Equal(t, []string{one}, list("k", "w"))
	require.Equal(t, []string{one}, list("k", "w", "b", "true"))
	require.Empty(t, list("long", long))

	labels, activity := 0, 0
	count := func() {
		b.row(t, &labels, "SELECT count(*) FROM session_labels WHERE session_id = $1", one)
		b.row(t, &activity, "SELECT count(*) FROM session_activity WHERE session_id = $1", one)
	}
	count()
	require.Equal(t, []int{2, 1}, []int{labels, activity})
	b.sql(t, "DELETE FROM sessions WHERE id = $1", one)
	count()
	require.Equal(t, []int{0, 0}, []int{labels, activity})
}

func TestListsByActivityFollowIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.id
	b.id = b.session(t)
	list := func(sort listing.Sort) (ids []string) {
		items, _, err := b.SessionList(b.ctx, listing.Filter{Sort: sort})
		require.NoError(t, err)
		for i, s := range items {
			ids = append(ids, s.ID)
			var at time.Time
			b.row(t, &at, "SELECT at FROM session_activity WHERE session_id = $1", s.ID)
			require.True(t, at.Equal(items[i].LastActivity), "the order is that of the displayed values")
		}
		return ids
	}
	require.Equal(t, []string{b.id, first}, list(listing.Active))
	require.Equal(t, []string{first, b.id}, list(listing.LeastActive))
	second := b.id
	b.id = first
	b.submit(t, "Hello.")
	require.Equal(t, []string{first, second}, list(listing.Active))
	require.Equal(t, []string{second, first}, list(listing.Newest))
	require.Equal(t, []string{first, second}, list(listing.Oldest))
}

func TestCursorIsForOneOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.session(t)
	for _, sort := range listing.Sorts {
		_, next, err := b.SessionList(b.ctx, listing.Filter{Sort: sort, Limit: 1})
		require.NoError(t, err)
		require.NotEmpty(t, next)
		for _, other := range listing.Sorts {
			_, _, err := b.SessionList(b.ctx, listing.Filter{Sort: other, Limit: 1, Cursor: next})
			if other == sort {
				require.NoError(t, err)
			} else {
				requireCode(t, failure.Invalid, err)
			}
		}
	}
}

// TestSearchWithoutItsIndex checks that a search finds the same sessions within the bounds of one
// page, and that the next call of Migrate with the required permission creates the index.
func TestSearchWithoutItsIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("Ein Käfer, 日本語の題名")})
	require.NoError(t, err)
	valid := func() (valid bool) {
		b.row(t, &valid, "SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('sessions_title_trigrams')), false)")
		return valid
	}
	require.True(t, valid())
	search := func() {
		db := postgrestest.Open(t, b.url) // a process that has not cached the absence of the index
		for _, q := range []string{"käfer", "KÄFER ein", "日本語", "題名", b.id, b.id[4:9]} {
			items, next, err := db.SessionList(b.ctx, listing.Filter{Query: q})
			require.NoError(t, err)
			require.Empty(t, next)
			if q == "KÄFER ein" {
				continue // folding letters other than a to z depends on the locale
			}
			require.Len(t, items, 1, q)
		}
	}
	search()
	b.sql(t, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'sessions_title_trigrams'::regclass")
	require.False(t, valid(), "as after a migration that was interrupted")
	search()
	require.NoError(t, b.Migrate(b.ctx))
	require.True(t, valid())
	b.sql(t, "DROP EXTENSION pg_trgm CASCADE")
	search()
}

// TestListsOfSessionsOfEarlierRelease lists such sessions after the migration, including one that
// was interrupted.
func TestListsOfSessionsOfEarlierRelease(t *testing.T) {
	t.Parallel()
	url := postgrestest.FileURL(t, "testdata/schema6.sql")
	b := &harness{DB: postgrestest.Open(t, url), url: url, ctx: t.Context()}
	b.sql(t, `UPDATE sessions SET metadata = '{"team":"blue"}'`)
	check := func() {
		t.Helper()
		require.NoError(t, b.Migrate(b.ctx))
		all, _, err := b.SessionList(b.ctx, listing.Filter{})
		require.NoError(t, err)
		for _, f := range []listing.Filter{{Metadata: metadata("team", "blue")}, {Sort: listing.Active}} {
			items, _, err := b.SessionList(b.ctx, f)
			require.NoError(t, err)
			require.Len(t, items, len(all))
		}
		var invalid int
		b.row(t, &invalid, "SELECT count(*) FROM pg_index WHERE NOT indisvalid")
		require.Zero(t, invalid)
	}
	check()
	b.sql(t, "DELETE FROM goose_db_version WHERE version_id = 81")
	b.sql(t, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'sessions_facets'::regclass")
	b.sql(t, "DROP INDEX sessions_agent_newest")
	b.sql(t, "DELETE FROM session_labels WHERE session_id LIKE '%1'")
	b.sql(t, "DELETE FROM session_activity WHERE session_id LIKE '%2'")
	check()
}

// testListReadsBoundedNumberOfPages counts the pages of tables and indexes that lists read, with
// custom plans and with generic plans, which Postgres may choose after some executions.
func testListReadsBoundedNumberOfPages(t *testing.T, url string, n int) {
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		db, err := postgres.Open(t.Context(), url+"&plan_cache_mode="+mode, postgres.Options{
			MaxConns: 1, CallTimeout: waitLimit, StatementTimeout: waitLimit,
		})
		require.NoError(t, err)
		defer db.Close()
		read := func() (pages int) {
			t.Helper()
			require.NoError(t, db.ReportStatistics(t.Context()))
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::int
				FROM pg_statio_user_tables WHERE relname IN ('sessions', 'session_labels', 'session_activity')`).Scan(&pages))
			return pages
		}
		for _, c := range listCases(n) {
			_, _, err := db.SessionList(t.Context(), c.filter) // planning reads pages, too
			require.NoError(t, err)
			before := read()
			_, _, err = db.SessionList(t.Context(), c.filter)
			require.NoError(t, err)
			most := 8 * 2000 // pages for each session of the first walk
			switch {
			case c.name == "activity of those created long ago":
				most *= 4 // no index has this order or finds few sessions, so the second walk follows
			case c.filter.Query != "":
				most = 2000
			case c.bound < 100*time.Millisecond:
				most = 250
			}
			require.Less(t, read()-before, most, "%s, %s", c.name, mode)
		}
	}
}

// TestSearchUsesBoundedNumberOfTrigrams: each trigram costs a list of all titles
// that contain it, and each word that is not looked up leaves more titles to compare.
func TestSearchUsesBoundedNumberOfTrigrams(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"":                                     "",
		"ab c# --":                             "",
		"login":                                "login",
		"login page":                           "page login",
		"#login/page":                          "login",
		"refactor":                             "refactor",
		"fourteenletter":                       "fourteenletter",
		"fifteenlettersx":                      "fifteenl lettersx",
		"日本語の題名":                               "日本語の題名",
		"one日本語の題名":                            "日本語の題名",
		"fix add remove refactor write test":   "fix add test wri ite remo ove refa tor",
		"refactor refactors refactored":        "refa ctor refa tors refa ored",
		strings.Repeat("abcdefgh ", 10):        strings.Repeat("abc ", 8) + "abc fgh abc fgh",
		strings.Repeat("abc ", 9) + "abcdefgh": strings.Repeat("abc ", 9) + "abcd fgh",
	} {
		runs := postgres.SearchRuns(strings.Fields(words)...)
		require.Equal(t, strings.TrimSpace(want), strings.Join(runs, " "), words)
		trigrams := 0
		for _, run := range runs {
			trigrams += utf8.RuneCountInString(run) - 2
		}
		require.LessOrEqual(t, trigrams, postgres.MaxTrigrams, words)
	}
}
