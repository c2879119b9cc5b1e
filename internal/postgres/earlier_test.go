package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestDatabaseOfEarlierReleaseIsMigratedAndUsed checks that reads return the data of that release
// unchanged, that workflows of this version can open every session, that every session accepts a
// command, and that sessions with work in progress continue.
func TestDatabaseOfEarlierReleaseIsMigratedAndUsed(t *testing.T) {
	t.Parallel()
	url := postgrestest.FileURL(t, "testdata/schema6.sql")
	b := &harness{DB: postgrestest.Open(t, url), url: url, ctx: t.Context()}
	requireCode(t, failure.IllegalState, b.SchemaCheck(b.ctx))
	require.NoError(t, b.Migrate(b.ctx))
	require.NoError(t, b.SchemaCheck(b.ctx))

	ids := map[session.State]string{}
	for i, state := range session.States {
		b.id = fmt.Sprintf("ses_%032x", i+1)
		ids[state] = b.id
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err, state)
		require.Equal(t, state, s.Status)
		require.Equal(t, "https://example.org/r.git", s.Workspace.RepoURL)
		events := b.events(t)
		for i, e := range events {
			require.EqualValues(t, i+1, e.Seq, state)
		}
		if state != session.Initializing {
			c, err := b.Conversation(b.ctx, b.id)
			require.NoError(t, err, state)
			said, err := json.Marshal(c)
			require.NoError(t, err)
			require.Contains(t, string(said), "It is done.", state)
			file, found := b.transcript(t)
			require.True(t, found, state)
			require.JSONEq(t, `{"n":1}`, string(file.Data))
		}
		opened, err := b.SessionOpen(b.ctx, b.id, "w-"+b.id)
		require.NoError(t, err, state)
		require.Equal(t, state, opened.Status)
		if state.Final() {
			continue
		}
		b.command(t, session.CommandStop)
		require.Equal(t, []session.CommandKind{session.CommandStop}, b.pending(t))
	}

	b.id = ids[session.Running]
	opened, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	runID := fmt.Sprintf("run_%030x02", 2)
	require.Equal(t, runID, opened.Processing.RunID)
	start, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: opened.Processing.Dispatch, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, "second", start.Prompt.Content)
	require.JSONEq(t, `{"v":1}`, string(start.Run.Translator))
	questions, _, err := b.QuestionList(b.ctx, b.id, "", 0, "")
	require.NoError(t, err)
	require.Len(t, questions, 1)
	_, err = b.QuestionAnswer(b.ctx, b.id, questions[0].ID, question.Answer{Decision: question.Reject})
	require.NoError(t, err)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t2", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	b.transit(t, session.EventStop, session.ReasonRequested)

	b.id = ids[session.Hibernated]
	head, err := b.BundleHead(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "im-000004a", head.SnapshotID)
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 2, head.SnapshotID))

	condemned, err := b.SnapshotsCondemn(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, condemned, "sessions wake from them")
	sealed, err := b.SecretSealed(b.ctx, "TOKEN")
	require.NoError(t, err)
	keyring, err := secret.NewKeyring(make([]byte, secret.KeyBytes))
	require.NoError(t, err)
	value, err := keyring.Open("TOKEN", sealed)
	require.NoError(t, err)
	require.Equal(t, "hidden-value", value.Reveal())
	profile, err := b.ProfileGet(b.ctx, "reviewer", 0)
	require.NoError(t, err)
	require.Equal(t, "be brief", profile.Spec.Instructions)
	attended, err := b.Attended(b.ctx, "", time.Hour, 10)
	require.NoError(t, err)
	require.NotEmpty(t, attended)
}
