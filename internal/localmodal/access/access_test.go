package access_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
)

func TestTokenIsMadeOnceAndPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := access.Load(dir)
	require.NoError(t, err)
	require.NoError(t, first.Validate())
	require.GreaterOrEqual(t, len(first.Secret), 43, "32 bytes in base64")
	info, err := os.Stat(access.Path(dir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again, err := access.Load(dir)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NotContains(t, first.String(), first.Secret)

	other, err := access.Load(t.TempDir())
	require.NoError(t, err)
	require.NotEqual(t, first, other)
}

func TestExposedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := access.Load(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(access.Path(dir), 0o644))
	second, err := access.Load(dir)
	require.NoError(t, err)
	require.NotEqual(t, first.Secret, second.Secret)
	info, err := os.Stat(access.Path(dir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestTokenFileIsReadByShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, err := access.Load(dir)
	require.NoError(t, err)
	out, err := exec.Command("sh", "-c", `set -a; . "$0"; set +a; env -u IFS printenv MODAL_TOKEN_ID MODAL_TOKEN_SECRET`, access.Path(dir)).Output()
	require.NoError(t, err)
	require.Equal(t, token.ID+"\n"+token.Secret+"\n", string(out))
}

func TestMatches(t *testing.T) {
	t.Parallel()
	token := access.New()
	require.True(t, token.Matches(token.ID, token.Secret))
	for _, wrong := range [][2]string{{"", ""}, {token.ID, ""}, {token.ID, token.Secret + "x"}, {"x", token.Secret}, {token.Secret, token.ID}} {
		require.False(t, token.Matches(wrong[0], wrong[1]), "%q", wrong)
	}
}

func TestDamagedTokenIsError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(access.Path(dir), []byte("MODAL_TOKEN_ID=x\nMODAL_TOKEN_SECRET=short\n"), 0o600))
	_, err := access.Load(dir)
	require.ErrorContains(t, err, "delete the file")
}
