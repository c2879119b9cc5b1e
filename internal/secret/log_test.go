package secret_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

func TestLogsAreMasked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var mask secret.LogMask
	logger := slog.New(mask.Handler(slog.NewJSONHandler(&out, nil)))
	logger.Info("before")
	mask.Set(secret.NewMasker(named("KEY", planted)))
	logger = logger.With(slog.String("with", planted)).WithGroup("group")
	logger.Error("failed for "+planted, slog.Any("error", errors.New("git said "+planted)), slog.Int("n", 1),
		slog.Group("inner", slog.String("s", planted)), slog.Any("list", []string{planted}), slog.Any("kept", []string{"a"}))
	require.NotContains(t, out.String(), planted)
	require.Contains(t, out.String(), `"with":"[redacted KEY]","group":{"error":"git said [redacted KEY]","n":1,"inner":{"s":"[redacted KEY]"},"list":"[[redacted KEY]]","kept":["a"]}`)
}
