package parrot

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

// asAgent names the environment variable that makes this test binary act as the agent.
const asAgent = "OVERWINTER_TEST_AS_PARROT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		if err := runProgram(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// command runs the program of a launch, which is not where it is in a sandbox.
func command(t *testing.T, launch agent.Launch) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, launch.Argv[1:]...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	return cmd
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	cannot := map[string]string{
		"Thinks":                 "it does not",
		"ReportsModelRefusal":    "it has no model",
		"ReportsRefusedKey":      "it has no model",
		"FailsAfterModelTimeout": "it has no model",
	}
	for _, scenario := range []string{
		"WritesFileWithTool", "ReportsFailingTool", "CallsSubagent", "InterruptedInTool", "KilledInTool",
		"AbortedIfKilledByRunner", "RepeatedDeliveryRunsOnce", "CutEndsOpenBlocks",
		"CallsToolsInParallel", "RunsAllowedTool", "SkipsDeniedTool", "AsksUser", "CallsOverwinterTool", "OverwinterToolsNeedNoPermission",
	} {
		cannot[scenario] = "it has no tools"
	}
	agenttest.Run(t, agenttest.Harness{
		Adapter: New(),
		Command: command,
		Prompts: agenttest.Prompts{
			Hello:     "hello to the " + agenttest.Word,
			WriteFile: "a prompt like any other",
			LongText:  "forever",
			Recall:    "first?",
		},
		Cannot:        cannot,
		KillLosesText: true,
		Unknown:       []string{`{"run":7}`, `{"piece":"of no run"}`},
	})
}
