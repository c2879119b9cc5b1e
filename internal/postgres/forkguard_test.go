package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestEarlierReleaseClaimsNoRunOfFork attaches to runs like RunAttach and RunClaim of a program
// that does not know forks.
func TestEarlierReleaseClaimsNoRunOfFork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	saved := b.snapshotted(t, "im-1").ID
	f := b.fork(t, fork.Fork{BundleID: saved})
	f.transit(t, session.EventWake, "")
	f.reserve(t, 1)
	f.transit(t, session.EventReady, "")
	earlier, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer earlier.Close(b.ctx)
	attach := func(s *harness) error {
		_, err := earlier.Exec(b.ctx, "UPDATE runs SET token = 'earlier', attempt = attempt + 1 WHERE id = $1", s.begin(t, s.submit(t, "x")))
		return err
	}
	require.NoError(t, attach(b))
	refused := (*pgconn.PgError)(nil)
	require.ErrorAs(t, attach(f), &refused)
	require.Equal(t, "57P03", refused.Code, "which every release tries again")
	_, err = earlier.Exec(b.ctx, "UPDATE runs SET token = '', ended_at = now(), outcome = 'failed' WHERE session_id = $1", f.id)
	require.NoError(t, err, "its handling of runs that it does not take is irrelevant")
	_, err = earlier.Exec(b.ctx, "INSERT INTO sandboxes SELECT (jsonb_populate_record(s, '{\"generation\": 2}')).* FROM sandboxes s WHERE s.session_id = $1", f.id)
	require.NoError(t, err)
	other := b.fork(t, fork.Fork{BundleID: saved, Agent: "codex"})
	_, err = earlier.Exec(b.ctx, "INSERT INTO sandboxes SELECT (jsonb_populate_record(s, jsonb_build_object('session_id', $2::text))).* FROM sandboxes s WHERE s.session_id = $1 LIMIT 1", f.id, other.id)
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Message, "does not install it")
	_, err = earlier.Exec(b.ctx, `INSERT INTO runs (id, session_id, prompt_id, generation, dispatch, started_at, token)
		SELECT 'run_claimed', session_id, prompt_id, 1, 1, now(), 'earlier' FROM runs WHERE session_id = $1 LIMIT 1`, f.id)
	require.ErrorAs(t, err, &refused)
}
