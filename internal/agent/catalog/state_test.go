package catalog_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
)

var run = agent.RunContext{RunID: "run_1", PromptID: "prm_1"}

// TestEveryStateHasVersion checks how a worker reads a running turn's state from another release:
// a state without a version is read as version 1, and a state of a later version is rejected.
func TestEveryStateHasVersion(t *testing.T) {
	t.Parallel()
	for _, a := range catalog.Agents().All() {
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			tr, err := a.NewTranslator(run, nil)
			require.NoError(t, err)
			state, err := tr.State()
			require.NoError(t, err)
			version := regexp.MustCompile(`^\{"v":1(,?)`)
			require.Regexp(t, version, string(state))

			old, err := a.NewTranslator(run, version.ReplaceAll(state, []byte("{")))
			require.NoError(t, err)
			again, err := old.State()
			require.NoError(t, err)
			require.Equal(t, string(state), string(again))

			_, err = a.NewTranslator(run, version.ReplaceAll(state, []byte(`{"v":99$1`)))
			require.ErrorContains(t, err, "version 99 is newer than 1")
		})
	}
}
