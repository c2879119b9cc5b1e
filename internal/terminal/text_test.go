package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColumnsOfRunes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"plain": 5, "ä": 1, "a\u0301": 1, "狐狸": 4, "한": 2, "ｗ": 2, "…": 1, "─": 1, "✓": 1, "α": 1,
		"🦊": 2, "✅": 2, "🟠": 2, "\u200b": 0,
	} {
		require.Equal(t, want, textColumns(text), "%q", text)
	}
}
