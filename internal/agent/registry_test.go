package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// named is an adapter that has only a name and a description.
type named struct {
	agent.Adapter
	name string
}

func (n named) Name() string                { return n.name }
func (n named) Describe() agent.Description { return agent.Description{Name: n.name} }

func TestRegistryListsItsAdaptersInOrder(t *testing.T) {
	t.Parallel()
	r := agent.NewRegistry(named{name: "zoe"}, named{name: "abe"})
	require.Equal(t, []string{"zoe", "abe"}, r.Names())
	require.Equal(t, []agent.Description{{Name: "zoe"}, {Name: "abe"}}, r.Describe())
	a, err := r.Get("abe")
	require.NoError(t, err)
	require.Equal(t, "abe", a.Name())
	_, err = r.Get("Abe")
	require.EqualError(t, err, `there is no agent "Abe"; there are: zoe, abe`)
}

func TestRegistryDoesNotChangeWithSliceItWasMadeFrom(t *testing.T) {
	t.Parallel()
	adapters := []agent.Adapter{named{name: "zoe"}}
	r := agent.NewRegistry(adapters...)
	adapters[0] = named{name: "abe"}
	require.Equal(t, []string{"zoe"}, r.Names())
}

func TestDuplicateAdapterNamePanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { agent.NewRegistry(named{name: "a"}, named{name: "b"}, named{name: "a"}) })
}

func TestParseExitReadsRunnerFormat(t *testing.T) {
	t.Parallel()
	r, err := agent.ParseExit([]byte(`{"code":-1,"signal":"killed","stderr":"x","interrupted":true}`))
	require.NoError(t, err)
	require.Equal(t, agent.ExitReport{Code: -1, Signal: "killed", Stderr: "x", Interrupted: true}, r)
	_, err = agent.ParseExit([]byte(`killed`))
	require.Error(t, err)
}
