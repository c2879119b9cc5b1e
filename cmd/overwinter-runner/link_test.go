package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestDeliversAPromptAndNumbersWhatTheAgentSays(t *testing.T) {
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1"})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1}, w.Welcome())

	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\ntwo\n")}))
	w.delivery(runner.Delivered)
	w.line("got two")
	require.NoError(t, w.Input([]byte("three\n")))
	w.line("got three")
	for i, f := range w.frames {
		require.EqualValues(t, i, f.No)
		require.Equal(t, runner.Stdout, f.Stream)
		require.False(t, f.At.IsZero())
	}
	require.Equal(t, []string{"got one", "got two", "got three"}, texts(w.frames))
	p := b.ping()
	require.True(t, p.Agent)
	require.Equal(t, "run_1", p.Run)
}

func TestOneProcessServesManyRuns(t *testing.T) {
	b := setup(t)
	script := `n=0; while read -r line; do n=$((n+1)); echo "$n $line"; done`
	for i := range 3 {
		w := b.started(fmt.Sprintf("run_%d", i), script, "hello\n")
		f := w.line(fmt.Sprintf("%d hello", i+1))
		require.Zero(t, f.No)
		require.NoError(t, w.Close())
	}
}
