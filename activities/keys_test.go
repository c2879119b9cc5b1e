package activities_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// A sandbox that was made before the key of the installation was replaced still answers to workers that have
// both, and so does one that a release without key ids made.
func TestSandboxSurvivesKeyRotation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.awake(t)
	fresh := bytes.Repeat([]byte{9}, secret.KeyBytes)
	both, err := secret.NewKeyring(fresh, masterKey)
	require.NoError(t, err)
	require.Equal(t, b.token(t, b.config.Keys, 1), b.token(t, both, 1))

	b.config.Keys = both
	b.build()
	in := b.claim(t, ready, "hello")
	_, err = b.begin(t, in).wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, b.run(t, in.RunID).Outcome)

	b.config.Keys, err = secret.NewKeyring(fresh)
	require.NoError(t, err)
	b.build()
	_, err = b.save(ready)
	require.ErrorContains(t, err, "another key", "without the previous key it cannot be reached")
}

func TestSandboxOfReleaseWithoutKeyIDsIsReachable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Keys = plainKeys{b.config.Keys.(*secret.Keyring)}
	b.build()
	ready := b.create(t)
	b.awake(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	_, err = conn.Exec(b.ctx, "UPDATE sandboxes SET link_key = NULL")
	require.NoError(t, err)

	b.config.Keys, err = secret.NewKeyring(bytes.Repeat([]byte{9}, secret.KeyBytes), masterKey)
	require.NoError(t, err)
	b.build()
	in := b.claim(t, ready, "hello")
	_, err = b.begin(t, in).wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, b.run(t, in.RunID).Outcome)
}

// plainKeys derive tokens as releases without key ids did.
type plainKeys struct{ *secret.Keyring }

func (k plainKeys) LinkKey(string) ([]byte, error) { return k.Keyring.LinkKey("") }
