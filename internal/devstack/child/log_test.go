package child

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadsSeverityOfJSONLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]slog.Level{
		`{"level":"DEBUG"}`:   slog.LevelDebug,
		`{"level":"warn"}`:    slog.LevelWarn,
		`{"level":"ERROR"}`:   slog.LevelError,
		`{"level":"fatal"}`:   slog.LevelError,
		`{"level":"INFO"}`:    slog.LevelInfo,
		`{"level":"error"`:    slog.LevelInfo,
		`level=ERROR msg="x"`: slog.LevelInfo,
		``:                    slog.LevelInfo,
	} {
		require.Equal(t, want, jsonSeverity([]byte(line)), line)
	}
}

func TestLastOutputPrefersErrors(t *testing.T) {
	t.Parallel()
	log, err := openLog(t.TempDir(), "one", jsonSeverity, func(slog.Level, []byte) {})
	require.NoError(t, err)
	require.Empty(t, log.lastWords())
	log.copyFrom(strings.NewReader("hello\n\n"))
	require.Equal(t, "hello", log.lastWords())
	log.copyFrom(strings.NewReader(`{"level":"error","msg":"no luck","at":"4\n\tand 5"}` + "\nshutting down"))
	require.Equal(t, "no luck at=4 and 5", log.lastWords())
	log.reset()
	require.Empty(t, log.lastWords())
	require.NoError(t, log.close())
}

func TestLongLinesAreLoggedInPieces(t *testing.T) {
	t.Parallel()
	var pieces []int
	log, err := openLog(t.TempDir(), "one", jsonSeverity, func(_ slog.Level, line []byte) { pieces = append(pieces, len(line)) })
	require.NoError(t, err)
	log.copyFrom(strings.NewReader(strings.Repeat("x", 2*maxLine+5) + "\nshort\n"))
	require.Equal(t, []int{maxLine, maxLine, 5, 5}, pieces)
	require.NoError(t, log.close())
}

// A client can make an api write any number of lines.
func TestChildLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := openLog(dir, "one", jsonSeverity, func(slog.Level, []byte) {})
	require.NoError(t, err)
	log.limit = 1000
	var printed strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&printed, "line %d\n", i)
	}
	log.copyFrom(strings.NewReader(printed.String()))
	require.NoError(t, log.close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1+keptLogs)
	var kept string
	for _, name := range []string{"one.log.3", "one.log.2", "one.log.1", "one.log"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), 1000, name)
		kept += string(text)
	}
	require.Greater(t, len(kept), 3000-3*len("line 999\n"))
	require.True(t, strings.HasSuffix(printed.String(), kept), "the newest lines are kept, in order")
}

func TestUnrotatableLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := openLog(dir, "one", jsonSeverity, func(slog.Level, []byte) {})
	require.NoError(t, err)
	log.limit = 1000
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "one.log.1", "full"), 0o700)) // no file can replace it
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "one.log.2", "full"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "one.log.3", "full"), 0o700))
	log.copyFrom(strings.NewReader(strings.Repeat("line\n", 1000) + "the end\n"))
	require.NoError(t, log.close())
	text, err := os.ReadFile(filepath.Join(dir, "one.log"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), 1000)
	require.True(t, strings.HasSuffix(string(text), "the end\n"))
}
