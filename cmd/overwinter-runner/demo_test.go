package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// turn runs one prompt of the demo agent and returns its outcome.
func (b *sandbox) turn(run, content string, resume bool, during func(*worker)) (*worker, *agent.TurnEnd) {
	b.t.Helper()
	adapter := demo.New()
	launch, err := adapter.Launch(agent.LaunchInput{SessionID: "ses_1", Home: b.paths.Home, Workspace: b.paths.Workspace, Resume: resume})
	require.NoError(b.t, err)
	launch.Argv[0] = b.paths.Binary
	launch.Env[asRunner] = "1"
	input, err := adapter.Prompt(agent.PromptInput{RunID: run, PromptID: "prm_1", Content: content, At: time.Now()})
	require.NoError(b.t, err)
	w := b.attach(runner.Hello{Run: run})
	require.NoError(b.t, w.Start(runner.Start{Input: input, Launch: runner.Launch{
		Argv: launch.Argv, Env: launch.Env, Dir: launch.Dir, Transcripts: launch.Transcripts, Key: "demo",
	}}))
	if during != nil {
		during(w)
	}
	translator, err := adapter.NewTranslator(agent.RunContext{RunID: run, PromptID: "prm_1"}, nil)
	require.NoError(b.t, err)
	var end *agent.TurnEnd
	w.until(func(m runner.Message) bool {
		f, ok := m.(*runner.Frame)
		if !ok {
			return false
		}
		got, err := translator.Translate(agent.Frame{No: f.No, Stream: agent.Stream(f.Stream), At: f.At, Data: f.Data})
		require.NoError(b.t, err)
		end = got.End
		return end != nil
	})
	require.NoError(b.t, w.Settle())
	return w, end
}

func TestDemoAgentWorksUnderRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, end := b.turn("run_1", "write hello.txt: hello from the demo", false, nil)
	require.Equal(t, "completed", string(end.Outcome))
	require.Contains(t, b.file("hello.txt"), "hello from the demo")
	s := store{}
	w.sync(s, 1)
	require.Len(t, s, 1, "its transcript")
	pid := b.ping().AgentPID

	_, end = b.turn("run_2", "sleep 60s", true, func(w *worker) {
		w.delivery(runner.Delivered)
		i := demo.New().Interrupt("run_2")
		require.True(t, b.abort("run_2", runner.Interrupt{Stdin: i.Stdin, Signal: i.Signal, Grace: 2 * deadline}))
	})
	require.Equal(t, "cancelled", string(end.Outcome))
	require.Equal(t, pid, b.ping().AgentPID, "an abort leaves the agent running")

	seal, _ := b.seal(runner.SealRequest{Known: s.positions()})
	require.Len(t, seal.Manifest.AgentFiles, 1)
}
