package translate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

func TestReadPassesLinesAndExit(t *testing.T) {
	t.Parallel()
	turn := translate.Turn{Run: agent.RunContext{RunID: "run_1"}}
	var read []agent.Frame
	line := func(f agent.Frame) {
		read = append(read, f)
		turn.Unparsed(f, string(f.Data))
	}
	exit := func(f agent.Frame) { read = append(read, f) }
	at := time.Date(2026, 11, 23, 1, 0, 0, 0, time.FixedZone("", 3600))

	out := turn.Read(agent.Frame{No: 7, Stream: agent.Stdout, At: at, Data: []byte("x")}, false, line, exit)
	require.Len(t, out.Events, 2)
	whole, ok := out.Events[1].Data.(conversation.BlockComplete)
	require.True(t, ok)
	require.Equal(t, "unparsed/run_1/7", whole.Block.ID)
	require.Equal(t, time.UTC, out.Events[1].At.Location())
	require.Empty(t, turn.Out, "the next frame starts with nothing")

	require.Empty(t, turn.Read(agent.Frame{Stream: agent.Stdout, Data: []byte(" \r\n")}, false, line, exit))
	require.Empty(t, turn.Read(agent.Frame{Stream: agent.Stderr, Data: []byte("x")}, false, line, exit))
	require.Empty(t, turn.Read(agent.Frame{Stream: agent.Stdout, Data: []byte("x")}, true, line, exit))
	require.Empty(t, turn.Read(agent.Frame{Stream: agent.Exit}, true, line, exit))
	require.Len(t, read, 1, "blank lines, other streams, and frames after the end are not read")
	turn.Read(agent.Frame{Stream: agent.Exit}, false, line, exit)
	require.Len(t, read, 2)
}

func TestQuestionIsAskedAndResolvedOnce(t *testing.T) {
	t.Parallel()
	var turn translate.Turn
	var waiting []string
	turn.Ask(&waiting, agent.Question{ID: "a"})
	turn.Ask(&waiting, agent.Question{ID: "a"})
	require.Equal(t, []agent.Question{{ID: "a"}}, turn.Out.Questions)
	require.True(t, turn.Resolve(&waiting, "a"))
	require.False(t, turn.Resolve(&waiting, "a"))
	require.Equal(t, []string{"a"}, turn.Out.Resolved)
	require.Empty(t, waiting)
}

func TestStateErrorNamesAgentAndRun(t *testing.T) {
	t.Parallel()
	turn := translate.Turn{Run: agent.RunContext{RunID: "run_1"}}
	state := struct{ A int }{A: 1}
	require.NoError(t, turn.Restore("demo", nil, 1, &state))
	require.Equal(t, 1, state.A)
	require.NoError(t, turn.Restore("demo", []byte(`{"v":1,"A":2}`), 1, &state))
	require.Equal(t, 2, state.A)
	require.EqualError(t, turn.Restore("demo", []byte(`{"v":2}`), 1, &state),
		"demo translator of run run_1: state: version 2 is newer than 1, which this release reads")
}

func TestStateIsEncodedAgainOnceItMayHaveChanged(t *testing.T) {
	t.Parallel()
	turn := translate.Turn{}
	var state struct {
		N int `json:"n"`
	}
	encoded := func() string {
		data, err := turn.State(1, &state)
		require.NoError(t, err)
		return string(data)
	}
	read := func(line func(agent.Frame)) {
		turn.Read(agent.Frame{Stream: agent.Stdout, Data: []byte("x")}, false, line, nil)
	}
	require.Equal(t, `{"v":1,"n":0}`, encoded())
	read(func(agent.Frame) { state.N++ })
	require.Equal(t, `{"v":1,"n":1}`, encoded())
	read(func(agent.Frame) {
		turn.Unchanged()
		state.N++ // to see that it is not encoded again
	})
	require.Equal(t, `{"v":1,"n":1}`, encoded())
	read(func(agent.Frame) {})
	require.Equal(t, `{"v":1,"n":2}`, encoded())
	state.N++
	turn.Changed()
	require.Equal(t, `{"v":1,"n":3}`, encoded())
}
