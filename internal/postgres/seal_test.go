package postgres_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestTranscriptsAreEncryptedAndReencrypted(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	first, second := bytes.Repeat([]byte{1}, secret.KeyBytes), bytes.Repeat([]byte{2}, secret.KeyBytes)
	open := func(current []byte, others ...[]byte) *postgres.DB {
		t.Helper()
		keyring, err := secret.NewKeyring(current, others...)
		require.NoError(t, err)
		db, err := postgres.Open(t.Context(), url, postgres.Options{Sealer: keyring})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	plain, sealing, both := postgrestest.Open(t, url), open(first), open(second, first)
	s, _, err := plain.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	write := func(db *postgres.DB, path string, offset int, data string) {
		t.Helper()
		require.NoError(t, db.TranscriptAppend(t.Context(), []transcript.Segment{{SessionID: s.ID, Path: path, Version: 1, Offset: int64(offset), Data: []byte(data)}}))
	}
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	stored := func() (parts [][]byte) {
		t.Helper()
		rows, err := conn.Query(t.Context(), "SELECT data FROM transcripts ORDER BY path, start")
		require.NoError(t, err)
		parts, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		return parts
	}
	content := func(db *postgres.DB) string {
		t.Helper()
		files, err := postgrestest.Transcripts(t.Context(), db, s.ID)
		require.NoError(t, err)
		var all []byte
		for _, f := range files {
			all = append(all, f.Data...)
		}
		return string(all)
	}
	// An earlier release stored the beginning.
	write(plain, "a", 0, "the beginning ")
	write(sealing, "a", 14, "the password is hunter2 ")
	write(sealing, "b", 0, "and more")
	const whole = "the beginning the password is hunter2 and more"
	require.Equal(t, whole, content(sealing))
	parts := stored()
	require.Contains(t, string(parts[0]), "the beginning")
	for _, part := range parts[1:] {
		require.EqualValues(t, 2, part[0])
		require.NotContains(t, string(part), "hunter2")
	}
	_, err = postgrestest.Transcripts(t.Context(), plain, s.ID)
	require.Equal(t, failure.Unavailable, failure.CodeOf(err), "without a key they cannot be read")

	// The key is rotated twice; each reseal runs in parts.
	reseal := func() (resealed int) {
		t.Helper()
		for after := ""; ; {
			n, failed, next, err := both.TranscriptsReseal(t.Context(), after)
			require.NoError(t, err)
			require.Zero(t, failed)
			resealed += n
			if after = next; next == "" {
				return resealed
			}
		}
	}
	require.Equal(t, 3, reseal())
	require.Zero(t, reseal())
	require.Equal(t, whole, content(open(second)), "the first key is not needed any more")
	_, err = postgrestest.Transcripts(t.Context(), sealing, s.ID)
	require.Error(t, err)
	// A row that is moved to the place of another cannot be opened.
	_, err = conn.Exec(t.Context(), "UPDATE transcripts SET path = 'c' WHERE path = 'b'; UPDATE transcript_positions SET path = 'c' WHERE path = 'b'")
	require.NoError(t, err)
	_, err = postgrestest.Transcripts(t.Context(), both, s.ID)
	require.ErrorContains(t, err, "transcript c")
}

func TestTurnStateIsEncryptedAndDeletedAtEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := bytes.Repeat([]byte{1}, secret.KeyBytes), bytes.Repeat([]byte{2}, secret.KeyBytes)
	open := func(current []byte, others ...[]byte) *postgres.DB {
		t.Helper()
		keyring, err := secret.NewKeyring(current, others...)
		require.NoError(t, err)
		db, err := postgres.Open(t.Context(), b.url, postgres.Options{Sealer: keyring})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	sealing, both := open(first), open(second, first)
	stored := func(run string) []byte {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), b.url)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		var state []byte
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT translator FROM runs WHERE id = $1", run).Scan(&state))
		return state
	}
	b.running(t)
	runID := b.begin(t, b.submit(t, "1"))
	commit := func(db *postgres.DB, frame int64, state string) {
		t.Helper()
		verdicts, err := db.EventsAppend(t.Context(), []eventlog.Append{
			{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: frame, State: []byte(state)},
		})
		require.NoError(t, err)
		require.Equal(t, []error{nil}, verdicts)
	}
	state := func(db *postgres.DB) string {
		t.Helper()
		start, err := db.RunFence(t.Context(), runID, "t1")
		require.NoError(t, err)
		return string(start.Run.Translator)
	}
	// An earlier release stored the state unsealed.
	commit(b.DB, 0, `{"held":"hunter2-plain"}`)
	require.JSONEq(t, `{"held":"hunter2-plain"}`, state(sealing))
	commit(sealing, 1, `{"held":"hunter2-sealed"}`)
	require.EqualValues(t, 2, stored(runID)[0])
	require.NotContains(t, string(stored(runID)), "hunter2")
	require.JSONEq(t, `{"held":"hunter2-sealed"}`, state(sealing))
	_, err := b.RunFence(t.Context(), runID, "t1")
	requireCode(t, failure.Unavailable, err)
	require.ErrorContains(t, err, "OVERWINTER_SECRET_KEY")

	n, failed, err := both.RunsReseal(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{n, failed})
	n, _, err = both.RunsReseal(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.JSONEq(t, `{"held":"hunter2-sealed"}`, state(open(second)), "the first key is not needed any more")
	_, failed, err = sealing.RunsReseal(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, failed)

	_, err = both.RunEnd(t.Context(), run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Empty(t, stored(runID))
}
