package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// speaker is a session whose agent is writing text.
type speaker struct {
	harness
	run    string
	before int64 // the position when its turn began
}

// speakers returns sessions with a turn in progress and an open block.
func speakers(t *testing.T, b *harness, n int) []*speaker {
	t.Helper()
	all := make([]*speaker, n)
	for i := range all {
		s := &speaker{harness: *b}
		s.id = b.session(t)
		s.running(t)
		s.run = s.begin(t, s.submit(t, "hello"))
		require.NoError(t, s.appendOne(t, eventlog.Append{
			SessionID: s.id, RunID: s.run, Generation: 1, Token: "t1",
			Events: []eventlog.Draft{
				draft("block_start", 0, 0, `{"block":{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z"}}`),
			},
		}))
		s.before = s.position(t)
		all[i] = s
	}
	return all
}

// word returns an append of one delta.
func (s *speaker) word(frame int64) eventlog.Append {
	return eventlog.Append{
		SessionID: s.id, RunID: s.run, Generation: 1, Token: "t1", LastFrame: frame, State: fmt.Append(nil, "after ", frame),
		Events: []eventlog.Draft{draft("text_delta", frame, 0, fmt.Sprintf(`{"blockId":"a","delta":"%d "}`, frame))},
	}
}

// TestWordsAreCommittedInOneRoundTrip counts the round trips for the deltas of many sessions, which
// dominate their cost.
func TestWordsAreCommittedInOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := newCountingProxy(t, b.url)
	db, err := postgres.Open(b.ctx, proxy.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	sessions := speakers(t, b, 5)
	var got cost
	for frame := range int64(3) { // the first one prepares statements
		var appends []eventlog.Append
		for _, s := range sessions {
			appends = append(appends, s.word(frame+1))
		}
		statements, trips := proxy.statements.Load(), proxy.roundTrips.Load()
		verdicts, err := db.EventsTryAppend(b.ctx, appends)
		require.NoError(t, err)
		require.Equal(t, make([]error, len(sessions)), verdicts)
		got = cost{proxy.statements.Load() - statements, proxy.roundTrips.Load() - trips}
	}
	require.Equal(t, cost{Statements: 2, RoundTrips: 1}, got)
	for _, s := range sessions {
		require.Equal(t, []string{"text_delta", "text_delta", "text_delta"}, s.types(t, s.before))
		r, err := b.RunGet(b.ctx, s.run)
		require.NoError(t, err)
		require.EqualValues(t, 3, r.LastFrame)
		require.Equal(t, "after 3", string(r.Translator))
		c, err := b.Conversation(b.ctx, s.id)
		require.NoError(t, err)
		blocks := c.Threads[0].Blocks
		require.Equal(t, "1 2 3 ", blocks[len(blocks)-1].Content)
	}
}

// TestBatchedDeltasAreValidatedSeparately mixes deltas that must not be written, or that need more than the
// single statement, into a batch of valid ones.
func TestBatchedDeltasAreValidatedSeparately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := []string{"good", "old token", "old generation", "run of another session", "no session", "repeated", "partly repeated", "over", "closed block", "locked"}
	all := speakers(t, b, len(names))
	named := map[string]*speaker{}
	for i, name := range names {
		named[name] = all[i]
	}
	require.NoError(t, named["repeated"].appendOne(t, named["repeated"].word(1)))
	require.NoError(t, named["partly repeated"].appendOne(t, named["partly repeated"].word(1)))
	named["over"].sql(t, "UPDATE runs SET ended_at = now(), outcome = 'completed' WHERE id = $1", named["over"].run)
	named["closed block"].sql(t, "UPDATE blocks SET live = false WHERE session_id = $1", named["closed block"].id)
	other, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer other.Close(b.ctx)
	_, err = other.Exec(b.ctx, "BEGIN")
	require.NoError(t, err)
	_, err = other.Exec(b.ctx, "SELECT FROM sessions WHERE id = $1 FOR UPDATE", named["locked"].id)
	require.NoError(t, err)

	var appends []eventlog.Append
	for i, name := range names {
		a := all[i].word(1)
		switch name {
		case "old token":
			a.Token = "t0"
		case "old generation":
			a.Generation = 0
		case "run of another session":
			a.RunID = named["good"].run
		case "no session":
			a.SessionID = "ses_nobody"
		case "partly repeated":
			a.LastFrame = 2
		}
		appends = append(appends, a)
	}
	verdicts, err := b.EventsTryAppend(b.ctx, appends)
	require.NoError(t, err)
	for i, name := range names {
		added := all[i].types(t, all[i].before)
		switch name {
		case "good", "repeated", "partly repeated", "closed block":
			require.NoError(t, verdicts[i], name)
			require.Equal(t, []string{"text_delta"}, added, name)
		case "old token", "old generation", "over":
			require.ErrorIs(t, verdicts[i], eventlog.ErrFenced, name)
			require.Empty(t, added, name)
		case "run of another session":
			requireCode(t, failure.NoRun, verdicts[i])
			require.Empty(t, added, name)
		case "no session", "locked":
			require.ErrorIs(t, verdicts[i], eventlog.ErrBusy, name)
			require.Empty(t, added, name)
		}
	}
	r, err := b.RunGet(b.ctx, named["partly repeated"].run)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.LastFrame)
	var live bool
	b.row(t, &live, "SELECT live FROM blocks WHERE session_id = $1 AND block_id = 'a'", named["closed block"].id)
	require.True(t, live, "readers look for the text")
}
