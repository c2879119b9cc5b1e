package claude_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	leaktest.Main(m)
}

var scripts = scripted.Scripts(scripted.Tools{
	Shell:    modelserver.Bash,
	Fail:     modelserver.Bash("echo out; echo err >&2; exit 7"),
	Delegate: modelserver.Subagent("{{child}} look around", true),
	Ask:      new(modelserver.Ask("Which colour?", "Red", agenttest.Choice)),
	SetTitle: "mcp__overwinter__set_title",
	Failing:  529, // overloaded
})

// command runs the real program of a launch against the model server, with only the variables that
// it needs from this machine's environment.
func command(t *testing.T, models string, launch agent.Launch) *exec.Cmd {
	t.Helper()
	argv := slices.Clone(launch.Argv)
	argv[slices.Index(argv, claude.Binary)] = filepath.Join(npmtest.Directory(t, claude.New().Packages()[0]), "claude")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir(),
		claude.SecretKey + "=sk-ant-none", claude.SecretBaseURL + "=" + models,
	}
	return cmd
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	models := sandboxed.ModelsURL(t, scripts)
	agenttest.Run(t, agenttest.Harness{
		Adapter: claude.New(),
		Command: func(t *testing.T, launch agent.Launch) *exec.Cmd {
			t.Helper()
			cmd := command(t, models, launch)
			if !strings.HasSuffix(t.Name(), "ReportsRefusedKey") { // that scenario must not depend on the retry limit
				cmd.Env = append(cmd.Env, "CLAUDE_CODE_MAX_RETRIES=2") // the default of ten takes minutes
			}
			return cmd
		},
		Prompts:                scripted.Prompts,
		Alone:                  []string{"ReportsRefusedKey"},
		KillLosesText:          true,
		PromptsUnsigned:        true,
		GoesOnWithKnownPrompts: true,
		Untimed:                []string{"retry"},
		Unknown: []string{
			`{"type":"stream_event"}`, `{"type":"stream_event","event":{"type":"content_block_start","index":"x"}}`,
			`{"type":"system"}`, `{"type":"system","subtype":"never heard of"}`, `{"type":"transcript_mirror","entries":7}`,
			`{"type":"control_request"}`, `{"type":"command_lifecycle"}`, `{"type":"assistant"}`, `{"type":"user"}`,
		},
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: claude.New(), Scripts: scripts, Suites: []string{"TestConformsToAdapterSuite"},
	})
}
