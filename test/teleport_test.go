package test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
)

// machine is a user's machine with the program of an agent.
type machine struct {
	home string
	env  []string
}

// newMachine installs a program under its name, as a script.
func newMachine(t *testing.T, name, script string, env ...string) machine {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	bin := filepath.Join(home, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexec "+script+` "$@"`+"\n"), 0o755))
	return machine{home, append([]string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "GIT_CONFIG_GLOBAL=/dev/null"}, env...)}
}

func (m machine) write(t *testing.T, name, content string) {
	t.Helper()
	name = filepath.Join(m.home, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
}

func (m machine) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/env", append([]string{name}, args...)...)
	cmd.Dir, cmd.Env = dir, m.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %v: %s%s", name, args, stdout.String(), stderr.String())
	return strings.TrimSpace(stdout.String())
}

// traveller is an agent's program on a machine.
type traveller struct {
	agent   agentUnderTest
	machine func(t *testing.T, models *modelserver.Server) machine
	// ask is the command that begins a session with a prompt, and proceed is the command that
	// continues one, like resume in a terminal.
	ask     []string
	resume  string
	proceed func(id string) []string
}

var travellers = []traveller{
	{
		agent: agentsUnderTest[0],
		machine: func(t *testing.T, models *modelserver.Server) machine {
			t.Helper()
			return newMachine(t, "claude", filepath.Join(npmtest.Directory(t, claude.New().Packages()[0]), "claude")+" -p --dangerously-skip-permissions",
				"IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "ANTHROPIC_API_KEY=sk-none", "ANTHROPIC_BASE_URL="+models.URL())
		},
		ask:     []string{"claude"},
		resume:  "claude --resume ",
		proceed: func(id string) []string { return []string{"claude", "--resume", id} },
	},
	{
		agent: agentsUnderTest[1],
		machine: func(t *testing.T, models *modelserver.Server) machine {
			t.Helper()
			found, err := filepath.Glob(filepath.Join(npmtest.Directory(t, codex.New().Packages()[0]), "vendor/*/bin/codex"))
			require.NoError(t, err)
			require.Len(t, found, 1)
			m := newMachine(t, "codex", found[0], "OPENAI_API_KEY=sk-none")
			m.write(t, ".codex/config.toml", `model = "gpt-5.5"
model_provider = "mine"

[model_providers.mine]
name = "mine"
base_url = "`+models.URL()+`/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
`)
			return m
		},
		ask:    []string{"codex", "exec", "--dangerously-bypass-approvals-and-sandbox"},
		resume: "codex resume ",
		proceed: func(id string) []string {
			return []string{"codex", "exec", "resume", "--dangerously-bypass-approvals-and-sandbox", id}
		},
	},
	{
		agent: agentsUnderTest[2],
		machine: func(t *testing.T, models *modelserver.Server) machine {
			t.Helper()
			m := newMachine(t, "opencode", filepath.Join(npmtest.Directory(t, opencode.New().Packages()[0]), "bin/opencode"),
				"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1")
			m.write(t, ".config/opencode/opencode.json", `{"provider":{"anthropic":{"options":{"baseURL":"`+models.URL()+
				`/v1","apiKey":"sk-none"}}},"model":"anthropic/claude-sonnet-5","share":"disabled","autoupdate":false,"permission":{"*":"allow"}}`)
			return m
		},
		ask:     []string{"opencode", "run"},
		resume:  "opencode --session ",
		proceed: func(id string) []string { return []string{"opencode", "run", "--session", id} },
	},
	{
		agent: agentsUnderTest[3],
		machine: func(t *testing.T, models *modelserver.Server) machine {
			t.Helper()
			m := newMachine(t, "gemini", "node "+filepath.Join(npmtest.Directory(t, gemini.New().Packages()[0]), "bundle/gemini.js")+" -m gemini-2.5-pro -y",
				"GEMINI_API_KEY=sk-none", "GOOGLE_GEMINI_BASE_URL="+models.URL(), "GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_CLI_NO_RELAUNCH=true")
			m.write(t, ".gemini/settings.json", `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`)
			return m
		},
		ask:     []string{"gemini", "-p"},
		resume:  "gemini --resume ",
		proceed: func(id string) []string { return []string{"gemini", "--resume", id, "-p"} },
	},
}

// TestSessionsMoveThereAndBack begins a session with each agent's real program on a user's machine,
// pushes it, runs it in a sandbox, pulls it, continues it with the program's own resume, and pushes
// that again: files and memory are present at each step, and the session that was pushed first is
// unchanged.
func TestSessionsMoveThereAndBack(t *testing.T) {
	t.Parallel()
	for _, tr := range travellers {
		t.Run(tr.agent.name, func(t *testing.T) {
			inShortForm(t, tr.agent.name, "gemini-cli")
			t.Parallel()
			tr.movesThereAndBack(t)
		})
	}
}

func (tr traveller) movesThereAndBack(t *testing.T) {
	models := modelserver.New(map[string][]modelserver.Step{
		"begin": {{Text: "I shall remember."}},
		"there": {{Calls: []modelserver.Call{tr.agent.run("cat committed untracked && echo from the sandbox > made.txt")}}, {Text: "Made."}},
		"back":  {{Calls: []modelserver.Call{tr.agent.run("cat made.txt untracked")}}, {Text: "Back."}},
		"again": {{Text: "Once more."}},
		"first": {{Text: "Still here."}},
	})
	t.Cleanup(models.Close)
	asked := func() string {
		requests := models.Requests()
		return strings.Join(requests[len(requests)-1].Prompts, "\n")
	}
	m, s := tr.machine(t, models), startStack(t)
	for name, value := range tr.agent.secrets(models) {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	dir := filepath.Join(m.home, "src", "my project")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	m.run(t, dir, "sh", "-c", "git init -q -b work . && echo one > committed && git add . && git -c user.name=a -c user.email=a@example.com commit -qm one && echo two > untracked")
	m.run(t, dir, tr.ask[0], append(tr.ask[1:], "Please remember the word narwhal. {{begin}}")...)

	id, begun := m.push(t, s, dir)
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "my project", got["title"])
	require.Equal(t, tr.agent.name, got["agent"])
	require.Contains(t, s.text(t, id), "I shall remember.")

	s.prompt(t, id, "there", "What is there? {{there}}")
	require.Equal(t, "completed", s.waitPrompt(t, id, "there", 4*time.Minute)["status"])
	require.Contains(t, s.text(t, id), "one\ntwo")
	require.Contains(t, asked(), "narwhal", "the agent has its memory")
	require.Contains(t, models.Sent(), "This session was moved here. It was at "+dir+" on ", "the agent is notified where it was")
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", time.Minute)

	to := filepath.Join(m.home, "pulled")
	command := m.run(t, dir, program(t, "overwinter"), "session", "pull", id, to, "--api-url", "http://"+s.api)
	local, ok := strings.CutPrefix(command, "cd "+to+" && "+tr.resume)
	require.True(t, ok, command)
	proceed := append(tr.proceed(local), "And here? {{back}}")
	require.Contains(t, m.run(t, to, proceed[0], proceed[1:]...), "Back.")
	require.Contains(t, asked(), "narwhal")
	require.Contains(t, asked(), "What is there?")
	require.Contains(t, models.Sent(), "It was in a sandbox, in /workspace; now you work on ", "the agent is notified where it is now")
	made, err := os.ReadFile(filepath.Join(to, "made.txt"))
	require.NoError(t, err)
	require.Equal(t, "from the sandbox\n", string(made))
	require.Equal(t, "?? made.txt\n?? untracked", m.run(t, to, "git", "status", "--porcelain"))

	again, _ := m.push(t, s, to)
	require.NotEqual(t, id, again)
	s.prompt(t, again, "again", "Still there? {{again}}")
	require.Equal(t, "completed", s.waitPrompt(t, again, "again", 4*time.Minute)["status"])
	for _, said := range []string{"narwhal", "What is there?", "And here?"} {
		require.Contains(t, asked(), said)
	}

	first := append(tr.proceed(begun), "And you? {{first}}")
	m.run(t, dir, first[0], first[1:]...)
	require.Contains(t, asked(), "narwhal")
	require.NotContains(t, asked(), "What is there?", "the first session is as it was")
}

// push pushes the newest session of a directory, and returns its new id, and that on the machine.
func (m machine) push(t *testing.T, s *stack, dir string) (id, local string) {
	t.Helper()
	out := m.run(t, dir, "sh", "-c", program(t, "overwinter")+" session push --api-url http://"+s.api+" 2>&1")
	found := regexp.MustCompile(`(?s)pushing session (\S+) of .*\n(ses_\S+)\s+hibernated`).FindStringSubmatch(out)
	require.NotNil(t, found, out)
	return found[2], found[1]
}
