package bridge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

func TestPatienceIsWhatTheEnvironmentSays(t *testing.T) { //nolint:paralleltest // the environment belongs to all
	for value, want := range map[string]time.Duration{"": time.Minute, "90s": 90 * time.Second, "-1s": time.Minute, "soon": time.Minute} {
		t.Setenv(bridge.EnvPatience, value)
		require.Equal(t, want, bridge.Patience(time.Minute), value)
	}
}
