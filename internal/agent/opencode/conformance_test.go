package opencode_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/opencodebridge"
)

// asBridge names the environment variable that makes this test binary act as the bridge.
const asBridge = "OVERWINTER_TEST_AS_OPENCODE_BRIDGE"

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	if os.Getenv(asBridge) != "" {
		os.Exit(opencodebridge.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// model is a model of Anthropic, whose API the model server implements.
const model = "anthropic/claude-sonnet-4-5"

// thinking enables thinking, which is off by default.
const thinking = `{"model":"` + model + `","provider":{"anthropic":{"models":{"claude-sonnet-4-5":{"options":{"thinking":{"type":"enabled","budgetTokens":2000}}}}}}}`

func bash(command string) modelserver.Call {
	return modelserver.Call{Tool: "bash", Input: map[string]any{"command": command, "description": "Run a command"}}
}

func task(prompt string) modelserver.Call {
	return modelserver.Call{Tool: "task", Input: map[string]any{
		"description": "Look into it", "prompt": prompt, "subagent_type": "general",
	}}
}

func question(words string, options ...string) modelserver.Call {
	list := make([]map[string]any, len(options))
	for i, o := range options {
		list[i] = map[string]any{"label": o, "description": "It is " + o}
	}
	return modelserver.Call{Tool: "question", Input: map[string]any{"questions": []map[string]any{{
		"question": words, "header": "Choice", "options": list,
	}}}}
}

var scripts = scripted.Scripts(scripted.Tools{
	Shell:    bash,
	Fail:     modelserver.Call{Tool: "read", Input: map[string]any{"filePath": "/nowhere/at/all"}},
	Delegate: task("{{child}} look around"),
	Ask:      new(question("Which colour?", "Red", agenttest.Choice)),
	SetTitle: "overwinter_set_title",
	Failing:  529, // overloaded
})

// command runs the bridge of a launch with the real program against the model server.
func command(t *testing.T, models string, launch agent.Launch, flags ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, opencode.Command, launch.Argv[1])
	argv := slices.Clone(launch.Argv[2:])
	program := filepath.Join(npmtest.Directory(t, opencode.New().Packages()[0]), "bin/opencode")
	argv[slices.Index(argv, opencode.Binary)] = program
	cmd := exec.Command(self, append(argv, flags...)...)
	cmd.Env = []string{
		asBridge + "=1", "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir(),
		"ANTHROPIC_API_KEY=sk-ant-none", "ANTHROPIC_BASE_URL=" + models, opencode.SecretConfig + "=" + thinking,
		// Most of the CPU time of these tests is that of OpenCode's start, which lasts too short for what
		// optimizing compilers and a concurrent garbage collector gain. Without them it takes a quarter less.
		"BUN_JSC_useDFGJIT=0", "BUN_JSC_useConcurrentGC=0",
	}
	return cmd
}

// fewModels makes OpenCode use a short list of models, because it takes seconds to read its own.
func fewModels(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("testdata/models.json")
	require.NoError(t, err)
	return "OPENCODE_MODELS_PATH=" + file
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	models := sandboxed.ModelsURL(t, scripts)
	agenttest.Run(t, agenttest.Harness{
		Adapter: opencode.New(),
		Command: func(t *testing.T, launch agent.Launch) *exec.Cmd {
			t.Helper()
			cmd := command(t, models, launch, "--retries", "2")
			cmd.Env = append(cmd.Env, fewModels(t))
			return cmd
		},
		Prompts:         scripted.Prompts,
		KillLosesText:   true,
		PromptsUnsigned: true,
		Unknown: []string{
			`{"type":"message.updated"}`, `{"type":"message.part.updated","properties":{"part":7}}`,
			`{"type":"message.part.delta","properties":{"partID":"prt_x","field":"text","delta":"x"}}`,
			`{"type":"session.idle","properties":{"sessionID":"ses_x"}}`, `{"type":"never.heard.of","properties":{}}`,
			`{"overwinter":{"type":"end","runId":"run_x"}}`, `{"overwinter":{"type":"new","data":7}}`, `: comment`, `data: {`,
		},
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: opencode.New(), Scripts: scripts, Suites: []string{"TestConformsToAdapterSuite"},
	})
}
