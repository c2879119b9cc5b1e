package child

import (
	"log/slog"
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
		require.Equal(t, want, JSONSeverity([]byte(line)), line)
	}
}

func TestLastWordsPreferErrors(t *testing.T) {
	t.Parallel()
	log, err := openLog(t.TempDir(), "one", JSONSeverity, func(slog.Level, []byte) {})
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
	log, err := openLog(t.TempDir(), "one", JSONSeverity, func(_ slog.Level, line []byte) { pieces = append(pieces, len(line)) })
	require.NoError(t, err)
	log.copyFrom(strings.NewReader(strings.Repeat("x", 2*maxLine+5) + "\nshort\n"))
	require.Equal(t, []int{maxLine, maxLine, 5, 5}, pieces)
	require.NoError(t, log.close())
}
