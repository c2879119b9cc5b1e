package bridge_test

import (
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

func TestModelTimeoutPrefersFlagThenVariableThenAlias(t *testing.T) { //nolint:paralleltest // the environment is shared
	for _, c := range []struct {
		variable string
		alias    string
		args     []string
		want     time.Duration
		err      string
	}{
		{"", "", nil, time.Minute, ""},
		{"90s", "", nil, 90 * time.Second, ""},
		{"-1s", "", nil, time.Minute, ""},
		{"soon", "", nil, time.Minute, ""},
		{"", "80s", nil, 80 * time.Second, ""},
		{"90s", "80s", nil, 90 * time.Second, ""},
		{"soon", "80s", nil, 80 * time.Second, ""},
		{"90s", "80s", []string{"--model-timeout", "2s"}, 2 * time.Second, ""},
		{"90s", "80s", []string{"--model-timeout", "0s"}, 90 * time.Second, "must be positive"},
		{"", "", []string{"--model-timeout", "soon"}, time.Minute, "invalid duration"},
	} {
		t.Setenv("OVERWINTER_MODEL_TIMEOUT", c.variable)
		t.Setenv("OVERWINTER_PATIENCE", c.alias)
		flags := flag.NewFlagSet("bridge", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		got := bridge.ModelTimeout(flags, time.Minute)
		err := flags.Parse(c.args)
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.err)
		}
		require.Equal(t, c.want, *got, "%q %q %v", c.variable, c.alias, c.args)
	}
}
