package claude_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/sandboxed"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
)

func TestMain(m *testing.M) {
	localmodal.ReexecMain()
	leaktest.Main(m)
}

// untilKilled runs until the agent that started it is gone, so that killing the agent alone leaves
// nothing running.
const untilKilled = "tail --pid=$PPID -f /dev/null; echo late"

var scripts = map[string][]modelserver.Step{
	"hello":  {{Text: "Hello to you, and to all who are with you."}},
	"recall": {{Text: "I remember ", Recall: true}},
	"write": {
		{Text: "I write a file.", Calls: []modelserver.Call{modelserver.Bash("printf '%s' '" + agenttest.FileText + "' >" + agenttest.FileName)}},
		{Text: "It is written."},
	},
	"fail": {
		{Calls: []modelserver.Call{modelserver.Bash("echo out; echo err >&2; exit 7")}},
		{Text: "That did not work."},
	},
	"think": {{Thinking: "Should I say it? I think I should.", Text: "Yes."}},
	"delegate": {
		{Text: "A subagent shall do it.", Calls: []modelserver.Call{modelserver.Subagent("{{child}} look around", true)}},
		{Text: "It is at work."},
		{Text: "It is done."},
	},
	"child": {
		{Text: "I look around.", Calls: []modelserver.Call{modelserver.Bash("echo a subagent was here")}},
		{Text: "I have looked around."},
	},
	"long": {{Text: strings.Repeat("word ", 5000), Pause: 20 * time.Millisecond}},
	"wait": {
		{Text: "This takes long.", Calls: []modelserver.Call{modelserver.Bash(untilKilled)}},
		{Text: "It took long."},
	},
	"parallel": {
		{Text: "Two at once.", Calls: []modelserver.Call{modelserver.Bash("echo one"), modelserver.Bash("echo two")}},
		{Text: "Both are done."},
	},
	"ask": {
		{Text: "I have a question.", Calls: []modelserver.Call{modelserver.Ask("Which colour?", "Red", agenttest.Choice)}},
		{Text: "Thank you."},
	},
	"refused": {{Status: 400}},
	"endless": {{Status: 529}},
}

// command runs the real program of a launch against the model server, with nothing of this
// machine's environment but what it needs.
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

func TestConformsToTheAdapterSuite(t *testing.T) {
	t.Parallel()
	models := sandboxed.ModelsURL(t, scripts)
	agenttest.Run(t, agenttest.Harness{
		Adapter: claude.New(),
		Command: func(t *testing.T, launch agent.Launch) *exec.Cmd {
			t.Helper()
			cmd := command(t, models, launch)
			cmd.Env = append(cmd.Env, "CLAUDE_CODE_MAX_RETRIES=2") // ten take minutes
			return cmd
		},
		Prompts: agenttest.Prompts{
			Hello:       "{{hello}} hello to the " + agenttest.Word,
			WriteFile:   "{{write}} the file",
			FailingTool: "{{fail}} please",
			Thinking:    "{{think}} about it",
			Subagent:    "{{delegate}} it",
			LongText:    "{{long}} story",
			LongTool:    "{{wait}} for it",
			Recall:      "{{recall}} the beginning",
			Parallel:    "{{parallel}} please",
			Guarded:     "{{write}} the file",
			Question:    "{{ask}} me",
			Refused:     "{{refused}} it",
			Endless:     "{{endless}} it",
		},
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

func TestConformsInASandbox(t *testing.T) {
	t.Parallel()
	sandboxed.Test(t, sandboxed.Options{
		Adapter: claude.New(), Scripts: scripts, Suites: []string{"TestConformsToTheAdapterSuite"},
	})
}
