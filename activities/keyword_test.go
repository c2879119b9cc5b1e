package activities

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestRepositoryFitsItsSearchAttribute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, address, want string }{
		{"plain", "https://github.com/o/r.git", "https://github.com/o/r.git"},
		{"credentials", "https://user:secret@github.com/o/r.git?token=secret#secret", "https://github.com/o/r.git"},
		{"scp", "git@github.com:o/r.git", "github.com:o/r.git"},
		{"no URL", "https://user:se%zzcret@github.com/o", "github.com/o"},
		{"long", "https://h/" + strings.Repeat("a", 2000), "https://h/" + strings.Repeat("a", 245)},
	} {
		require.Equal(t, c.want, keyword(c.address), c.name)
	}
	for n := range 4 {
		got := keyword(strings.Repeat("x", n) + strings.Repeat("€", 300))
		require.LessOrEqual(t, len(got), 255)
		require.Greater(t, len(got), 250)
		require.True(t, utf8.ValidString(got))
	}
	require.True(t, utf8.ValidString(keyword("\xff\xfe")))
}
