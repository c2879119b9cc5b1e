package codex_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/codexbridge"
)

// asBridge names the environment variable that makes this test binary act as the bridge.
const asBridge = "OVERWINTER_TEST_AS_CODEX_BRIDGE"

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	if os.Getenv(asBridge) != "" {
		os.Exit(codexbridge.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(asServer) != "" {
		serveTool(os.Stdin, os.Stdout)
		return
	}
	leaktest.Main(m)
}

// Models have different tools: plain calls them directly, newest calls most of them from JavaScript
// and is offered subagents from the start.
const (
	plain  = "gpt-5.5"
	newest = "gpt-6.1-sol"
)

var scripts = scripted.Scripts(scripted.Tools{
	Shell:    modelserver.Exec,
	Write:    new(modelserver.Patch(agenttest.FileName, agenttest.FileText)),
	Fail:     modelserver.Exec("echo out; echo err >&2; exit 7"),
	Delegate: modelserver.Spawn("helper", "{{child}} look around"),
	Child:    new(modelserver.Script("text((await tools.exec_command({cmd: 'echo a subagent was here'})).output)")),
	Ask:      new(modelserver.AskUser("Which colour?", "Red", agenttest.Choice)),
	SetTitle: "set_title",
})

// binary returns the path of the real program.
func binary(t testing.TB) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(npmtest.Directory(t, codex.New().Packages()[0]), "vendor/*/bin/codex"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	return names[0]
}

// command runs the bridge of a launch from this test binary, with the real program against the
// model server and only the variables that it needs from this machine's environment.
func command(t *testing.T, models string, launch agent.Launch, flags ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, codex.Command, launch.Argv[1])
	argv := slices.Clone(launch.Argv[2:])
	argv[slices.Index(argv, codex.Binary)] = binary(t)
	cmd := exec.Command(self, append(argv, flags...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir(), asBridge + "=1",
		codex.SecretKey + "=sk-none", codex.SecretBaseURL + "=" + models + "/v1",
	}
	return cmd
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	models := sandboxed.ModelsURL(t, scripts)
	agenttest.Run(t, agenttest.Harness{
		Adapter: codex.New(),
		Command: func(t *testing.T, launch agent.Launch) *exec.Cmd {
			t.Helper()
			model := plain
			switch path.Base(t.Name()) {
			case "CallsSubagent":
				model = newest
			case "CallsOverwinterTool", "OverwinterToolsNeedNoPermission":
				model = old // models that the program knows must first search for the tools of servers
			}
			return command(t, models, launch, "--model", model, "--model-timeout", "2s")
		},
		Prompts:       scripted.Prompts,
		Alone:         []string{"CallsSubagent", "CallsOverwinterTool", "OverwinterToolsNeedNoPermission"},
		KillLosesText: true,
		Unknown: []string{
			`{"method":"item/started"}`, `{"method":"item/completed","params":{"item":7}}`, `{"method":"turn/completed","params":{"turn":[]}}`,
			`{"method":"never/heard/of","params":{}}`, `{"id":7,"method":"never/heard/of","params":{}}`, `{"id":7,"result":{"thread":7}}`,
			`{"overwinter":{"type":"never heard of"}}`, `{"overwinter":7}`, `{"method":7}`,
		},
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: codex.New(), Scripts: scripts, Suites: []string{"TestConformsToAdapterSuite"},
	})
}
