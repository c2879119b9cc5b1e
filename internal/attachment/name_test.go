package attachment_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
)

func TestNamesOfFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "shot 1.png", ".env", "übersicht.pdf", "a..b", "console.log", strings.Repeat("x", 255)} {
		require.Empty(t, attachment.CheckName(name), name)
	}
	for name, says := range map[string]string{
		"": "is required", strings.Repeat("x", 256): "at most 255", "a/b": "path separator", `a\b`: "path separator", "../a": "path separator",
		".": "reserved", "..": "reserved", " ": "reserved", "CON": "reserved", "nul.txt": "reserved", "com1": "reserved",
		"a\nb": "control", "a\x00": "control", "a\x7f": "control", "gnp\u202e.exe": "control", "\xff": "UTF-8",
	} {
		require.Contains(t, attachment.CheckName(name), says, "%q", name)
	}
}
