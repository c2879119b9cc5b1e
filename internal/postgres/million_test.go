package postgres_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var (
	million    = flag.Int("million", 0, "time the lists of that many sessions: make bench-million")
	millionURL = flag.String("million-url", "", "a database that has them already")
)

// fillSessions inserts sessions, newest first: of ten, three sleep and seven are terminated; one in
// a thousand runs and one in five thousand is in error. Titles consist of five of thirty words and
// a number. Metadata are a team (of 5), a tenant (of 2000) and a ticket (of three sessions each).
// Terminated sessions are in odd teams, too, so that some pairs of frequent filters have no session
// in common.
const fillSessions = `
INSERT INTO sessions (id, status, agent, title, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options, running_since)
SELECT 'ses_' || md5(i::text),
    CASE WHEN i % 1000 = 0 THEN 'running' WHEN i % 5000 = 1 THEN 'error' WHEN i % 10 < 3 THEN 'hibernated' ELSE 'terminated' END,
    CASE WHEN i % 100 = 0 THEN 'gemini-cli' WHEN i % 10 = 0 THEN 'codex' ELSE 'claude-sdk' END,
    (SELECT string_agg((ARRAY['fix','add','remove','refactor','write','test','review','deploy','login','page','api','server','client','button',
        'form','query','index','cache','queue','worker','session','agent','sandbox','token','user','error','crash','leak','memory','disk'])
        [1 + (hashint4(i * 13 + k) & 1073741823) % 30], ' ') FROM generate_series(1, 5) k) || ' #' || i,
    true, now() - i * interval '3 seconds', now() - i * interval '2 seconds', 900000000000,
    json_build_object('team', 't' || i % 5, 'ticket', 'T-' || i / 3, 'tenant', 'c' || i % 2000), '{}', CASE WHEN i % 1000 = 0 THEN now() END
FROM generate_series($1::int, $2::int) i`

func fillMany(t testing.TB, conn *pgx.Conn, n int) {
	t.Helper()
	for from := 1; from <= n; from += 20000 {
		_, err := conn.Exec(t.Context(), fillSessions, from, min(n, from+19999))
		require.NoError(t, err)
	}
	_, err := conn.Exec(t.Context(), "VACUUM ANALYZE")
	require.NoError(t, err)
}

// listCase is a combination of filters.
type listCase struct {
	name   string
	filter listing.Filter
	bound  time.Duration // bound on the median, on an idle machine with two cores
}

func metadata(pairs ...string) (members []listing.MetadataMember) {
	for pair := range slices.Chunk(pairs, 2) {
		members = append(members, listing.MetadataMember{Key: pair[0], Value: pair[1]})
	}
	return members
}

// listCases returns the lists of docs/operations.md, for n sessions.
func listCases(n int) []listCase {
	now := time.Now()
	ago := func(i int) time.Time { return now.Add(-time.Duration(i) * 3 * time.Second) }
	const one, any, search = 20 * time.Millisecond, 200 * time.Millisecond, 50 * time.Millisecond
	return []listCase{
		{"all", listing.Filter{}, one},
		{"oldest first", listing.Filter{Sort: listing.Oldest}, one},
		{"status, many", listing.Filter{Status: session.Hibernated}, one},
		{"status, few", listing.Filter{Status: session.Error}, one},
		{"status, none", listing.Filter{Status: session.Restoring}, one},
		{"agent, many", listing.Filter{Agent: "claude-sdk"}, one},
		{"agent, few", listing.Filter{Agent: "gemini-cli"}, one},
		{"agent, none", listing.Filter{Agent: "opencode"}, one},
		{"status and agent", listing.Filter{Status: session.Hibernated, Agent: "codex"}, one},
		{"status and agent, none", listing.Filter{Status: session.Error, Agent: "gemini-cli"}, one},
		{"metadata, many", listing.Filter{Metadata: metadata("team", "t3")}, one},
		{"metadata, some", listing.Filter{Metadata: metadata("tenant", "c77")}, one},
		{"metadata, few", listing.Filter{Metadata: metadata("ticket", fmt.Sprint("T-", n/4))}, one},
		{"metadata, none", listing.Filter{Metadata: metadata("team", "none")}, one},
		{"created, newest", listing.Filter{CreatedSince: ago(n / 100)}, one},
		{"created, long ago", listing.Filter{CreatedSince: ago(n * 9 / 10), CreatedBefore: ago(n * 8 / 10)}, one},

		{"status and metadata, many", listing.Filter{Status: session.Terminated, Metadata: metadata("team", "t3")}, any},
		{"status and metadata, none of many", listing.Filter{Status: session.Hibernated, Metadata: metadata("team", "t3")}, any},
		{"status and metadata, few", listing.Filter{Status: session.Error, Metadata: metadata("team", "t1")}, any},
		{"status and metadata, one of few", listing.Filter{Status: session.Running, Metadata: metadata("tenant", "c1000")}, any},
		{"agent and metadata", listing.Filter{Agent: "codex", Metadata: metadata("team", "t0")}, any},
		{"agent and metadata, none of many", listing.Filter{Agent: "codex", Metadata: metadata("team", "t3")}, any},
		{"status, agent and metadata", listing.Filter{Status: session.Hibernated, Agent: "claude-sdk", Metadata: metadata("team", "t1")}, any},
		{"status, agent and metadata, none of many", listing.Filter{Status: session.Hibernated, Agent: "claude-sdk", Metadata: metadata("team", "t3")}, any},
		{"two metadata", listing.Filter{Metadata: metadata("team", "t2", "tenant", "c77")}, any},
		{"two metadata, none of many", listing.Filter{Metadata: metadata("team", "t3", "tenant", "c77")}, any},
		{"three metadata", listing.Filter{Metadata: metadata("team", "t2", "tenant", "c77", "ticket", fmt.Sprint("T-", 77/3))}, any},
		{"status and created", listing.Filter{Status: session.Error, CreatedBefore: ago(n / 2)}, any},
		{"metadata and created", listing.Filter{Metadata: metadata("team", "t3"), CreatedSince: ago(n * 9 / 10), CreatedBefore: ago(n * 8 / 10)}, any},
		{"all but words", listing.Filter{
			Status: session.Hibernated, Agent: "claude-sdk", Metadata: metadata("team", "t1"), CreatedBefore: ago(n / 2),
		}, any},

		{"activity", listing.Filter{Sort: listing.Active}, any},
		{"activity, least", listing.Filter{Sort: listing.LeastActive}, any},
		{"activity of a status, many", listing.Filter{Sort: listing.Active, Status: session.Terminated}, any},
		{"activity of a status, few", listing.Filter{Sort: listing.LeastActive, Status: session.Error}, any},
		{"activity of an agent", listing.Filter{Sort: listing.Active, Agent: "gemini-cli"}, any},
		{"activity of metadata", listing.Filter{Sort: listing.Active, Metadata: metadata("tenant", "c77")}, any},
		{"activity of three filters, none of many", listing.Filter{
			Sort: listing.Active, Status: session.Hibernated, Agent: "claude-sdk", Metadata: metadata("team", "t3"),
		}, any},
		{"activity of those created long ago", listing.Filter{Sort: listing.Active, CreatedBefore: ago(n * 9 / 10)}, any},

		{"search for a common word", listing.Filter{Query: "login"}, search},
		{"search for two common words", listing.Filter{Query: "login page"}, search},
		{"search for a part of a word", listing.Filter{Query: "ogi"}, search},
		{"search for a number", listing.Filter{Query: fmt.Sprint("#", n/2)}, search},
		{"search for nothing there is", listing.Filter{Query: "nowhere"}, search},
		{"search for common words that are never together", listing.Filter{Query: "fix add remove refactor write test"}, search},
		{"search for one character", listing.Filter{Query: "x"}, search},
		{"search for two characters", listing.Filter{Query: "lo"}, search},
		{"search for two characters that are nowhere", listing.Filter{Query: "zq"}, search},
		{"search for punctuation", listing.Filter{Query: "--- ///"}, search},
		{"search for an ID", listing.Filter{Query: "ses_a87ff679a2f3e71d9181a67b7542122c"}, search},
		{"search for the start of an ID", listing.Filter{Query: "a87ff6"}, search},
		{"search in a status", listing.Filter{Query: "login", Status: session.Error}, search},
		{"search in metadata", listing.Filter{Query: "login", Metadata: metadata("tenant", "c77")}, search},
		{"search by activity", listing.Filter{Query: "login", Sort: listing.LeastActive}, search},
	}
}

// TestMillion times the first page of each list, and the pages after the tenth.
func TestMillion(t *testing.T) { //nolint:paralleltest // measures time
	if *million == 0 {
		t.Skip("run by make bench-million")
	}
	url := *millionURL
	if url == "" {
		url = postgrestest.URL(t)
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		begun := time.Now()
		fillMany(t, conn, *million)
		t.Logf("made %d sessions in %v", *million, time.Since(begun).Round(time.Second))
		require.NoError(t, conn.Close(t.Context()))
	}
	db, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	pid := db.BackendPID(t.Context(), t)
	t.Logf("%-50s %10s %10s %10s %10s %6s %s", "list", "p50", "max", "cpu", "page 11", "bound", "sessions")
	for _, c := range listCases(*million) {
		before := cpu(pid)
		first, items, next := timeList(t, db, c.filter)
		used := (cpu(pid) - before) / time.Duration(len(first)+1)
		deep := time.Duration(0)
		for range 9 {
			if next != "" {
				c.filter.Cursor = next
				_, next, err = db.SessionList(t.Context(), c.filter)
				require.NoError(t, err)
			}
		}
		if next != "" {
			c.filter.Cursor = next
			times, _, _ := timeList(t, db, c.filter)
			deep = times[len(times)/2]
		}
		median, slowest := first[len(first)/2], first[len(first)-1]
		verdict := ""
		if median > c.bound || deep > c.bound {
			verdict = "  OVER"
		}
		t.Logf("%-50s %10v %10v %10v %10v %6v %d%s", c.name, median.Round(10*time.Microsecond), slowest.Round(10*time.Microsecond), used,
			deep.Round(10*time.Microsecond), c.bound, items, verdict)
	}
}

// cpu returns the CPU time that a process of this machine has used; zero if unknown.
func cpu(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // user and system time
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func timeList(t *testing.T, db *postgres.DB, f listing.Filter) (times []time.Duration, items int, next string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for range 11 {
		begun := time.Now()
		page, cursor, err := db.SessionList(ctx, f)
		times = append(times, time.Since(begun))
		require.NoError(t, err)
		items, next = len(page), cursor
	}
	times = times[1:] // the first warms up
	slices.Sort(times)
	return times, items, next
}
