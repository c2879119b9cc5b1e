package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

type someState struct {
	Open  []string `json:"open,omitempty"`
	Ended bool     `json:"ended,omitempty"`
}

func TestStatesHaveVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state someState
		want  string
	}{
		{someState{}, `{"v":3}`},
		{someState{Open: []string{"a"}, Ended: true}, `{"v":3,"open":["a"],"ended":true}`},
	} {
		got, err := agent.EncodeState(3, &c.state)
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
		var back someState
		require.NoError(t, agent.DecodeState(got, 3, &back))
		require.Equal(t, c.state, back)
		require.EqualError(t, agent.DecodeState(got, 2, &back), "version 3 is newer than 2, which this release reads")
	}
	_, err := agent.EncodeState(1, []string{"a"})
	require.Error(t, err)
}

func TestStatesWithoutVersionAreRead(t *testing.T) {
	t.Parallel()
	var s someState
	require.NoError(t, agent.DecodeState([]byte(`{"open":["a"]}`), 1, &s))
	require.Equal(t, someState{Open: []string{"a"}}, s)
	require.Error(t, agent.DecodeState([]byte(`{"open":`), 1, &s))
}
