package acp_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpbridge"
)

// as names the environment variable that makes this test binary act as the bridge or as the
// scripted agent.
const as = "OVERWINTER_TEST_AS"

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	if len(os.Args) > 1 && os.Args[1] == "scripted" {
		os.Exit(runScripted(os.Args[2:], os.Stdin, os.Stdout))
	}
	if os.Getenv(as) == "bridge" {
		os.Exit(acpbridge.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// profiled is the adapter with a profile, which names the agent's command, in every launch.
type profiled struct {
	acp.Adapter
	profile profile.Spec
}

func (p profiled) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if in.Profile == nil {
		in.Profile = &p.profile
	}
	return p.Adapter.Launch(in)
}

// withCommand returns the adapter with an agent's command line.
func withCommand(t *testing.T, argv ...string) profiled {
	t.Helper()
	line, err := json.Marshal(argv)
	require.NoError(t, err)
	return profiled{profile: profile.Spec{Environment: map[string]string{acp.EnvCommand: string(line)}}}
}

// scriptedAgent returns the adapter with the scripted agent.
func scriptedAgent(t *testing.T, flags ...string) profiled {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return withCommand(t, append([]string{self, "scripted"}, flags...)...)
}

// command runs the bridge of a launch from this test binary.
func command(t *testing.T, launch agent.Launch) *exec.Cmd {
	t.Helper()
	return hasty(t, launch, acpbridge.DefaultTimeout)
}

// hasty is command with a shorter model timeout.
func hasty(t *testing.T, launch agent.Launch, silence time.Duration) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, acp.Command, launch.Argv[1])
	cmd := exec.Command(self, append([]string{"--model-timeout", silence.String()}, launch.Argv[2:]...)...)
	cmd.Env = []string{as + "=bridge", "PATH=" + os.Getenv("PATH")}
	return cmd
}

var prompts = agenttest.Prompts{
	Hello:       "hello to the " + agenttest.Word,
	WriteFile:   "write " + agenttest.FileName + " " + agenttest.FileText,
	FailingTool: "fail please",
	Thinking:    "think about it",
	LongText:    "long story",
	LongTool:    "wait for it",
	Recall:      "recall the beginning",
	Parallel:    "parallel please",
	Guarded:     "guarded " + agenttest.FileName + " " + agenttest.FileText,
	Refused:     "error please",
	Endless:     "silence please",

	Unauthorized: "unauthorized please",
	Forbidden:    "forbidden please",
}

var cannot = map[string]string{
	"CallsSubagent": "the protocol has no subagents: theirs are calls like any other",
	"AsksUser":      "the protocol has no questions but for permission",

	"CallsOverwinterTool":             "the scripted agent starts no servers",
	"OverwinterToolsNeedNoPermission": "the scripted agent starts no servers",
}

// hurried are the scenarios for which impatient shortens the model timeout.
var hurried = []string{"FailsAfterModelTimeout"}

// impatient shortens the model timeout for the scenario whose model never answers.
func impatient(t *testing.T, launch agent.Launch) *exec.Cmd {
	t.Helper()
	if strings.HasSuffix(t.Name(), "FailsAfterModelTimeout") {
		return hasty(t, launch, 2*time.Second)
	}
	return command(t, launch)
}

// unknown lists lines that no agent should send.
var unknown = []string{
	`{"jsonrpc":"2.0","method":"session/update"}`, `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"never heard of"}}}`,
	`{"jsonrpc":"2.0","method":"session/update","params":7}`, `{"jsonrpc":"2.0","method":"session/request_permission","params":{}}`,
	`{"jsonrpc":"2.0","id":"x","result":{}}`, `{"jsonrpc":"2.0","method":"never/heard"}`,
	`{"overwinter":{"type":"never heard of"}}`, `{"overwinter":{"type":"block","data":7}}`,
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	agenttest.Run(t, agenttest.Harness{
		Adapter: scriptedAgent(t), Command: impatient, Prompts: prompts, Cannot: cannot, Alone: hurried, KillLosesText: true, Unknown: unknown,
	})
}

// TestConformsWithLoadingAgent runs an agent that stores sessions in its own files.
func TestConformsWithLoadingAgent(t *testing.T) {
	t.Parallel()
	adapter := scriptedAgent(t, "--load")
	adapter.profile.Environment[acp.EnvTranscripts] = strings.Join([]string{".scripted/*.json", "../../etc/passwd"}, ":")
	agenttest.Run(t, agenttest.Harness{
		Adapter: adapter, Command: impatient, Prompts: prompts, Cannot: cannot, Alone: hurried, KillLosesText: true, Unknown: unknown,
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: scriptedAgent(t), Suites: []string{"TestConformsToAdapterSuite", "TestConformsWithLoadingAgent"},
	})
}
