package demo_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/demoagent"
)

// asAgent names the environment variable that makes this test binary act as the agent.
const asAgent = "OVERWINTER_TEST_AS_DEMO_AGENT"

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	if os.Getenv(asAgent) != "" {
		os.Exit(demoagent.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// command runs the agent of a launch from this test binary.
func command(t *testing.T, launch agent.Launch) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, demo.Command, launch.Argv[1])
	cmd := exec.Command(self, launch.Argv[2:]...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	return cmd
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	agenttest.Run(t, agenttest.Harness{
		Adapter: demo.New(),
		Command: command,
		Prompts: agenttest.Prompts{
			Hello:       "hello to the " + agenttest.Word + " and its friends",
			WriteFile:   "write " + agenttest.FileName + ": " + agenttest.FileText,
			FailingTool: "$ echo out; echo err >&2; exit 7\nthat did not work",
			Thinking:    "think: should I?\nyes",
			Subagent:    "subagent helper: $ echo a subagent was here\ndone",
			LongText:    "slow 20ms: " + strings.Repeat("word ", 5000),
			LongTool:    "sleep 5m",
			Recall:      "recall",
			Guarded:     "write " + agenttest.FileName + ": " + agenttest.FileText + "\nso much for that",
			Question:    "ask: Which colour? | Red | " + agenttest.Choice,
			Steerable:   "sleep 2s\nthat took a while",
			Steer:       "and this too",
			Tool:        `tool set_title: {"title": "` + agenttest.Title + `"}`,
		},
		Cannot: map[string]string{
			"CallsToolsInParallel":   "it does one line of its script after the other",
			"ReportsModelRefusal":    "it has no model",
			"ReportsRefusedKey":      "it has no model",
			"FailsAfterModelTimeout": "it has no model",
		},
		KillLosesText: true,
		Unknown:       []string{`{"type":"delta"}`, `{"type":"start","uuid":"x","kind":"video"}`, `{"type":"result","outcome":"great"}`, `{"type":"user","uuid":7}`},
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: demo.New(), Suites: []string{"TestConformsToAdapterSuite"},
	})
}
