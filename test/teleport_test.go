package test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
)

// machine is the machine of a person, who has Claude Code.
type machine struct {
	home   string
	models string
}

// claude runs the real program to the end of a turn.
func (m machine) claude(t *testing.T, dir string, args ...string) string {
	t.Helper()
	binary := filepath.Join(npmtest.Directory(t, claude.New().Packages()[0]), "claude")
	return m.run(t, dir, binary, append([]string{"-p", "--dangerously-skip-permissions"}, args...)...)
}

func (m machine) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"HOME=" + m.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
		"ANTHROPIC_API_KEY=sk-ant-none", "ANTHROPIC_BASE_URL=" + m.models, "GIT_CONFIG_GLOBAL=/dev/null",
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %v: %s%s", name, args, stdout.String(), stderr.String())
	return strings.TrimSpace(stdout.String())
}

// TestClaudeCodeMovesThereAndBack begins a session with the real Claude Code on a person's machine, pushes it, has it work in a sandbox,
// pulls it, continues it with the program's own resume, and pushes that again: files and memory are there at each step.
func TestClaudeCodeMovesThereAndBack(t *testing.T) {
	t.Parallel()
	models := modelserver.New(map[string][]modelserver.Step{
		"begin": {{Text: "I shall remember."}},
		"there": {{Calls: []modelserver.Call{modelserver.Bash("cat committed untracked && echo from the sandbox > made.txt")}}, {Text: "Made.", Recall: true}},
		"back":  {{Calls: []modelserver.Call{modelserver.Bash("cat made.txt untracked")}}, {Text: "Back.", Recall: true}},
		"again": {{Text: "Once more.", Recall: true}},
	})
	t.Cleanup(models.Close)
	asked := func() string {
		requests := models.Requests()
		return strings.Join(requests[len(requests)-1].Prompts, "\n")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	m, s := machine{home, models.URL()}, startStack(t)
	for name, value := range map[string]string{"ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": models.URL()} {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	dir := filepath.Join(home, "src", "my project")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	m.run(t, dir, "sh", "-c", "git init -q -b work . && echo one > committed && git add . && git -c user.name=a -c user.email=a@example.com commit -qm one && echo two > untracked")
	m.claude(t, dir, "Please remember the word narwhal. {{begin}}")

	cli := func(args ...string) string {
		return m.run(t, dir, program(t, "overwinter"), append(args, "--api-url", "http://"+s.api)...)
	}
	pushed := strings.Fields(cli("session", "push"))
	require.Equal(t, "hibernated", pushed[1])
	id := pushed[0]
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "my project", got["title"])
	require.Contains(t, s.text(t, id), "I shall remember.")

	s.prompt(t, id, "there", "What is there? {{there}}")
	require.Equal(t, "completed", s.waitPrompt(t, id, "there", 4*time.Minute)["status"])
	require.Contains(t, s.text(t, id), "one\ntwo")
	require.Contains(t, asked(), "narwhal", "the agent has its memory")
	require.Contains(t, models.Sent(), "This session was moved here. It was at "+dir+" on ", "the agent is notified where it was")
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", time.Minute)

	to := filepath.Join(home, "pulled")
	resume := cli("session", "pull", id, to)
	command, ok := strings.CutPrefix(resume, "cd "+to+" && claude ")
	require.True(t, ok, resume)
	said := m.claude(t, to, append(strings.Fields(command), "And here? {{back}}")...)
	require.Contains(t, said, "Back.")
	require.Contains(t, asked(), "narwhal")
	require.Contains(t, asked(), "What is there?")
	made, err := os.ReadFile(filepath.Join(to, "made.txt"))
	require.NoError(t, err)
	require.Equal(t, "from the sandbox\n", string(made))
	require.Equal(t, "?? made.txt\n?? untracked", m.run(t, to, "git", "status", "--porcelain"))

	again := strings.Fields(m.run(t, to, program(t, "overwinter"), "session", "push", "--api-url", "http://"+s.api))[0]
	require.NotEqual(t, id, again)
	s.prompt(t, again, "again", "Still there? {{again}}")
	require.Equal(t, "completed", s.waitPrompt(t, again, "again", 4*time.Minute)["status"])
	require.Contains(t, asked(), "narwhal")
	require.Contains(t, asked(), "And here?")
}
