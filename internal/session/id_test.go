package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

var prefixes = []string{
	session.SessionPrefix, session.PromptPrefix, session.RunPrefix,
	session.BundlePrefix, session.QuestionPrefix, session.ProfilePrefix,
}

func TestIDsAreOfTheirKindAndSortByAge(t *testing.T) {
	t.Parallel()
	for i, prefix := range prefixes {
		var ids []string
		for range 1000 {
			ids = append(ids, session.NewID(prefix))
		}
		require.True(t, slices.IsSorted(ids), prefix)
		require.Len(t, slices.Compact(slices.Clone(ids)), len(ids), "no two are the same")
		require.True(t, session.ValidID(prefix, ids[0]), ids[0])
		require.False(t, session.ValidID(prefixes[(i+1)%len(prefixes)], ids[0]), ids[0])
		require.True(t, session.ValidPromptID(ids[0]), "an id of ours may name a prompt")
	}
}

func TestValidIDRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0", 32)
	require.True(t, session.ValidID("ses_", "ses_"+digits))
	for _, id := range []string{
		"", "ses_", digits, "ses_" + digits + "0", "ses_" + digits[1:], "ses_" + strings.Repeat("A", 32),
		"SES_" + digits, " ses_" + digits, "ses_" + digits + "\n", "ses_" + digits[1:] + "g", "xxx_" + digits,
	} {
		require.False(t, session.ValidID("ses_", id), "%q", id)
	}
	require.False(t, session.ValidID("xxx_", "xxx_"+digits), "an unknown kind")
}

func TestValidPromptID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "A-z_09", strings.Repeat("x", 64)} {
		require.True(t, session.ValidPromptID(id), "%q", id)
	}
	for _, id := range []string{"", strings.Repeat("x", 65), "a b", "a/b", "ä", "a\n", "a.b"} {
		require.False(t, session.ValidPromptID(id), "%q", id)
	}
}

func TestSandboxNamesDifferByGeneration(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ses_1-g7", session.SandboxName("ses_1", 7))
	require.NotEqual(t, session.SandboxName("ses_1", 1), session.SandboxName("ses_1", 2))
}
