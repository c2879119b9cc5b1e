package gemini_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/geminibridge"
)

// asBridge names the environment variable that makes this test binary act as the bridge.
const asBridge = "OVERWINTER_TEST_AS_GEMINI_BRIDGE"

func TestMain(m *testing.M) {
	agenttest.ToolsMain()
	localmodal.ReexecMain()
	if os.Getenv(asBridge) == "mcp" {
		os.Exit(serveMCP(os.Stdin, os.Stdout))
	}
	if os.Getenv(asBridge) != "" {
		os.Exit(geminibridge.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// long returns a text that takes long to write. It varies, because the program aborts a text that
// repeats itself.
func long() string {
	var s strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&s, "word%d ", i)
	}
	return s.String()
}

var scripts = scripted.Scripts(scripted.Tools{
	Shell:    modelserver.Shell,
	Fail:     modelserver.ReadFile("/etc/passwd"), // outside of the workspace
	Delegate: modelserver.Delegate("generalist", "{{child}} look around"),
	Long:     long(),
	SetTitle: "mcp_overwinter_set_title",
})

// command runs the bridge of a launch from this test binary, with the real program and only the
// variables that it needs from this machine's environment.
func command(t *testing.T, models string, launch agent.Launch, flags ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, gemini.Command, launch.Argv[1])
	argv := slices.Concat(flags, launch.Argv[2:])
	argv[slices.Index(argv, gemini.Program)] = filepath.Join(npmtest.Directory(t, gemini.New().Packages()[0]), "bundle", "gemini.js")
	cmd := exec.Command(self, argv...)
	cmd.Env = []string{
		asBridge + "=1", "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + t.TempDir(),
		gemini.SecretKey + "=none", gemini.SecretBaseURL + "=" + models,
	}
	return cmd
}

func TestConformsToAdapterSuite(t *testing.T) {
	t.Parallel()
	models := sandboxed.ModelsURL(t, scripts)
	agenttest.Run(t, agenttest.Harness{
		Adapter: gemini.New(),
		Command: func(t *testing.T, launch agent.Launch) *exec.Cmd {
			t.Helper()
			silence := geminibridge.DefaultTimeout
			if strings.HasSuffix(t.Name(), "FailsAfterModelTimeout") {
				silence = 3 * time.Second
			}
			return command(t, models, launch, "--model-timeout", silence.String())
		},
		Prompts: scripted.Prompts,
		Alone:   []string{"FailsAfterModelTimeout"},
		Cannot: map[string]string{
			"AsksUser": "over ACP the program asks for permission alone",
		},
		KillLosesText: true,
		Unknown: []string{
			`{"jsonrpc":"2.0","method":"session/update"}`, `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"never heard of"}}}`,
			`{"jsonrpc":"2.0","method":"session/update","params":7}`, `{"jsonrpc":"2.0","method":"session/request_permission","params":{}}`,
			`{"jsonrpc":"2.0","id":"x","result":{}}`, `{"jsonrpc":"2.0","method":"never/heard"}`,
			`{"overwinter":{"type":"never heard of"}}`, `{"overwinter":{"type":"chat","data":7}}`, `{"overwinter":{"type":"tool","id":"x","data":7}}`,
		},
	})
}

func TestConformsInSandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: gemini.New(), Scripts: scripts, Suites: []string{"TestConformsToAdapterSuite"},
	})
}
