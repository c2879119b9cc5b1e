package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// TestPromptForTurnIsWrittenOnce covers several workers that send the prompt, and prompts for other
// runs.
func TestPromptForTurnIsWrittenOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1"})
	require.True(t, w.Welcome().Steers)
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.line("got one")
	require.NoError(t, w.Steer("prm_1", []byte("two\n")))
	w.line("got two")
	require.NoError(t, w.Steer("prm_1", []byte("two\n")))
	require.NoError(t, w.Close())
	w = b.attach(runner.Hello{Run: "run_1", From: 2})
	require.NoError(t, w.Steer("prm_1", []byte("two\n")))
	require.NoError(t, w.Input([]byte("three\n")))
	require.EqualValues(t, 2, w.line("got three").No)

	w = b.attach(runner.Hello{Run: "run_2"})
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("four\n")}))
	w.line("got four")
	require.NoError(t, w.Steer("prm_1", []byte("five\n")), "another run")
	w.line("got five")
}
