package bridged_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/bridged"
)

func TestPromptsAndInterruptsNameTheirRun(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("", 3600))
	in := agent.PromptInput{RunID: "run_1", PromptID: "prm_1", Content: "a\nb", Author: "ada", At: at}
	line, err := bridged.Prompt("Codex", in)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"prompt","runId":"run_1","promptId":"prm_1","content":"a\nb","author":"ada","at":"2026-01-02T02:04:05.678Z"}`, string(line))
	require.Equal(t, byte('\n'), line[len(line)-1])
	_, err = bridged.Prompt("Codex", agent.PromptInput{Content: "a"})
	require.EqualError(t, err, "prompt Codex: no run id")
	interrupt := bridged.Interrupt("run_1")
	require.JSONEq(t, `{"type":"interrupt","runId":"run_1"}`, string(interrupt.Stdin))
	require.Equal(t, byte('\n'), interrupt.Stdin[len(interrupt.Stdin)-1])
	require.Positive(t, interrupt.Grace)
}

func TestLaunchNeedsSessionAndItsDirectories(t *testing.T) {
	t.Parallel()
	fine := agent.LaunchInput{SessionID: "ses_1", Home: "/root", Workspace: "/workspace"}
	require.NoError(t, bridged.Validate("Codex", fine))
	for want, change := range map[string]func(*agent.LaunchInput){
		`launch Codex: "../x" cannot name a session's files`: func(in *agent.LaunchInput) { in.SessionID = "../x" },
		"launch Codex: home and workspace are needed":        func(in *agent.LaunchInput) { in.Home = "" },
	} {
		in := fine
		change(&in)
		require.EqualError(t, bridged.Validate("Codex", in), want)
	}
	in := fine
	in.Workspace = ""
	require.Error(t, bridged.Validate("Codex", in))
}
