package session_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestTitleIsBeginningOfPrompt(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                              "",
		" \n\t\n":                       "",
		"Fix the build":                 "Fix the build",
		"\n  Fix\tthe   build \nplease": "Fix the build",
		"Please look at the flaky test in the scheduler package and fix it": "Please look at the flaky test in the scheduler package and…",
		strings.Repeat("ä", 80): strings.Repeat("ä", 60) + "…",
	} {
		require.Equal(t, want, session.TitleOf(content))
	}
	rapid.Check(t, func(t *rapid.T) {
		title := session.TitleOf(rapid.String().Draw(t, "content"))
		require.LessOrEqual(t, utf8.RuneCountInString(title), 61)
		require.NotContains(t, title, "\n")
	})
}
