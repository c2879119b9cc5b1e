package test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
)

var allAgents = flag.Bool("all-agents", false, "run each test of real agents with all of them, not only with that of its short form")

// inShortForm skips the subtest of an agent that a run of all tests omits. A real agent uses as
// much CPU time as ten sessions of the demo agent, so in such a run each of these tests uses only
// one agent, a different one for each test.
func inShortForm(t *testing.T, agent, short string) {
	t.Helper()
	if !*allAgents && agent != short {
		t.Skipf("make real-agents runs it with %s; without -all-agents it runs with %s", agent, short)
	}
}

// plantedKey is the key of every model server in these tests. It must not appear anywhere else.
const plantedKey = "sk-planted-7c1d9e"

// agentUnderTest is a real agent with the configuration for a model server.
type agentUnderTest struct {
	name    string
	secrets func(models *modelserver.Server) map[string]string
	// run makes the model call the agent's shell.
	run func(command string) modelserver.Call
	// delegate makes the model call a subagent.
	delegate func(prompt string) modelserver.Call
}

var agentsUnderTest = []agentUnderTest{
	{
		name: "claude-sdk",
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{"ANTHROPIC_API_KEY": plantedKey, "ANTHROPIC_BASE_URL": models.URL()}
		},
		run:      modelserver.Bash,
		delegate: func(prompt string) modelserver.Call { return modelserver.Subagent(prompt, false) },
	},
	{
		name: "codex",
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{"OPENAI_API_KEY": plantedKey, "OPENAI_BASE_URL": models.URL() + "/v1"}
		},
		run:      modelserver.Exec,
		delegate: func(prompt string) modelserver.Call { return modelserver.Spawn("helper", prompt) },
	},
	{
		name: "opencode",
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{"ANTHROPIC_API_KEY": plantedKey, "ANTHROPIC_BASE_URL": models.URL()}
		},
		run: func(command string) modelserver.Call {
			return modelserver.Call{Tool: "bash", Input: object{"command": command, "description": "Run a command"}}
		},
		delegate: func(prompt string) modelserver.Call {
			return modelserver.Call{Tool: "task", Input: object{"description": "Look", "prompt": prompt, "subagent_type": "general"}}
		},
	},
	{
		name: "gemini-cli",
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{"GEMINI_API_KEY": plantedKey, "GOOGLE_GEMINI_BASE_URL": models.URL()}
		},
		run:      modelserver.Shell,
		delegate: func(prompt string) modelserver.Call { return modelserver.Delegate("generalist", prompt) },
	},
}

// scripts are the model's answers, for the tools of each agent.
func (a agentUnderTest) scripts() map[string][]modelserver.Step {
	return map[string][]modelserver.Step{
		"file":   {{Text: "I write it.", Calls: []modelserver.Call{a.run("echo from the agent > made.txt && cat made.txt")}}, {Text: "Written."}},
		"wait":   {{Calls: []modelserver.Call{a.run("echo waited >> waited.txt; sleep 4; cat waited.txt")}}, {Text: "Waited."}},
		"recall": {{Text: "I know: ", Recall: true}},
		"both":   {{Calls: []modelserver.Call{a.run("echo one of two"), a.run("echo two of two")}}, {Text: "Both."}},
		"fail":   {{Calls: []modelserver.Call{a.run("echo broken >&2; exit 7")}}, {Text: "That failed."}},
		"refuse": {{Status: http.StatusBadRequest}},
		"spawn":  {{Calls: []modelserver.Call{a.delegate("{{child}} look around")}}, {Text: "Delegated."}, {Text: "Done indeed."}},
		"child":  {{Text: "The subagent has looked."}},
		"guard":  {{Calls: []modelserver.Call{a.run("touch guarded-file && echo it was allowed")}}, {Text: "So be it."}},
		"long":   {{Text: longStory(3000), Pause: 20 * time.Millisecond}},
	}
}

// longStory returns a text without repetition, because Gemini CLI ends a turn in which 50
// characters repeat ten times.
func longStory(words int) string {
	var b strings.Builder
	for n := range words {
		fmt.Fprintf(&b, "word%d ", n)
	}
	return b.String()
}

// TestEveryAgentKeepsItsMemory takes each agent through parallel and failing tools, a subagent, a
// model that refuses, a worker that is killed while a tool runs, permissions that people refuse and
// grant, an abort, a fork before the third of five prompts, a hibernation, and the loss of its
// snapshot: it wakes in a fresh sandbox, the receipt reports that, and its requests to the model
// contain the conversation. The key of its model appears nowhere.
func TestEveryAgentKeepsItsMemory(t *testing.T) {
	t.Parallel()
	for _, a := range agentsUnderTest {
		t.Run(a.name, func(t *testing.T) {
			inShortForm(t, a.name, "claude-sdk")
			t.Parallel()
			keepsItsMemory(t, a)
		})
	}
}

func keepsItsMemory(t *testing.T, a agentUnderTest) {
	scripts := a.scripts()
	maps.Copy(scripts, a.forkScripts())
	models := modelserver.New(scripts)
	t.Cleanup(models.Close)
	s := startTemporalStack(t, nil)
	for name, value := range a.secrets(models) {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	id := s.create(t, object{
		"agent": a.name, "prompt": object{"id": "first", "content": "Please remember the word narwhal. {{file}}"},
	})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 4*time.Minute)["status"], "the image is made once")

	s.prompt(t, id, "wait", "Now {{wait}} a little")
	turn := s.promptRun(t, id, "wait")
	stream.wait(t, 60*time.Second, "the tool is called", func(e event) bool {
		return e.RunID == turn && e.Type == "block_complete" && strings.Contains(string(e.Data), `"tool_use"`) ||
			e.RunID == turn && e.Type == "block_update" && strings.Contains(string(e.Data), `"running"`)
	})
	s.killChild(t, "overwinter", "worker")
	require.Equal(t, "completed", s.waitPrompt(t, id, "wait", 90*time.Second)["status"])
	require.Equal(t, 1, strings.Count(s.text(t, id), `waited`+"\n"), "the tool ran once")

	s.worksAndFails(t, id)
	s.asksForPermission(t, id, stream)
	s.forksARealAgent(t, models, object{"agent": a.name})

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 60*time.Second)
	s.loseSnapshots(t, id)
	s.prompt(t, id, "recall", "What was it? {{recall}}")
	require.Equal(t, "completed", s.waitPrompt(t, id, "recall", 2*time.Minute)["status"])
	require.Contains(t, s.text(t, id), "narwhal", "it answers with its history")
	woken := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Contains(t, []string{"partial", "fresh"}, woken["receipt"].(object)["kind"], "%v", woken["receipt"])
	requests := models.Requests()
	require.Contains(t, strings.Join(requests[len(requests)-1].Prompts, "\n"), "narwhal")

	// A second session of the agent uses the image that the first has built.
	second := s.create(t, object{"agent": a.name, "prompt": object{"id": "p", "content": "{{recall}} nothing"}})
	require.Equal(t, "completed", s.waitPrompt(t, second, "p", 60*time.Second)["status"])
	require.Equal(t, 1, strings.Count(s.log(t, "worker"), `"msg":"image prepared"`))

	stream.all(t)
	require.Equal(t, plantedKey, requests[0].Key, "it was used")
	s.processesAreClean(t, plantedKey)
	databaseIsClean(t, s.databaseURL, plantedKey)
	s.stop(t)
	s.filesAreClean(t, plantedKey)
}

// worksAndFails makes the agent call tools in parallel, a failing tool and a subagent, and makes
// its model refuse to answer.
func (s *stack) worksAndFails(t *testing.T, id string) {
	t.Helper()
	for _, script := range []string{"both", "fail", "spawn"} {
		s.prompt(t, id, script, "{{"+script+"}} it")
		require.Equal(t, "completed", s.waitPrompt(t, id, script, 90*time.Second)["status"], script)
	}
	text := s.text(t, id)
	for _, said := range []string{"one of two", "two of two", "broken", "That failed.", "Delegated."} {
		require.Contains(t, text, said)
	}
	conversations := s.conversations(t, id)
	require.Greater(t, len(conversations), 1, "the subagent has its own conversation")
	require.Contains(t, fmt.Sprint(conversations[1].blocks), "The subagent has looked.")
	s.prompt(t, id, "refuse", "{{refuse}} it")
	refused := s.waitPrompt(t, id, "refuse", 90*time.Second)
	require.Equal(t, "failed", refused["status"])
	require.Contains(t, refused["reason"], "scripted error 400")
	require.NotContains(t, refused["reason"], "{", "people shall read it")
}

// asksForPermission makes the agent ask for permission, which is refused and then granted, and
// aborts it in the middle of its answer.
func (s *stack) asksForPermission(t *testing.T, id string, stream *follower) {
	t.Helper()
	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask"}})
	s.prompt(t, id, "refused", "{{guard}} it")
	s.answer(t, id, s.asked(t, id), object{"answer": "reject", "message": "not today"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "refused", 60*time.Second)["status"])
	require.NotContains(t, s.text(t, id), "it was allowed\n")
	s.prompt(t, id, "allowed", "{{guard}} it again")
	s.answer(t, id, s.asked(t, id), object{"answer": "once"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "allowed", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "it was allowed")

	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{}})
	s.prompt(t, id, "long", "A {{long}} story")
	run := s.promptRun(t, id, "long")
	stream.wait(t, 60*time.Second, "the agent speaks", func(e event) bool { return e.RunID == run && e.Type == "text_delta" })
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/abort", nil)
	aborted := s.waitPrompt(t, id, "long", 60*time.Second)
	require.Equal(t, "cancelled", aborted["status"], "%v", aborted)
}

// loseSnapshots deletes the session's snapshots at the provider.
func (s *stack) loseSnapshots(t *testing.T, sessionID string) {
	t.Helper()
	s.loseSnapshotsOf(t, "session_id = $1", sessionID)
}

// loseSnapshotsOf deletes the snapshots of bundles at the provider.
func (s *stack) loseSnapshotsOf(t *testing.T, where string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.databaseURL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT DISTINCT snapshot_id FROM bundles WHERE snapshot_id <> '' AND "+where, args...)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	drv, err := modalsandbox.New(s.modalConfig(t))
	require.NoError(t, err)
	defer drv.Close()
	for _, id := range ids {
		if err := drv.DeleteImage(t.Context(), id); !sandbox.IsGone(err) { // an earlier loss has already deleted it
			require.NoError(t, err)
		}
	}
}

// promptRun returns the run of the prompt.
func (s *stack) promptRun(t *testing.T, sessionID, promptID string) (runID string) {
	t.Helper()
	eventually(t, 60*time.Second, "a run has prompt "+promptID, func() error {
		_, p, err := s.call("GET", "/api/sessions/"+sessionID+"/prompts/"+promptID, nil)
		if err != nil {
			return err
		}
		runID, _ = p["runId"].(string)
		if runID == "" || p["status"] == "queued" {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
	return runID
}

// log returns the log of a child of dev.
func (s *stack) log(t *testing.T, child string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.dir, "logs", child+".log"))
	require.NoError(t, err)
	return string(raw)
}

// databaseIsClean looks for a secret in every row of every table.
func databaseIsClean(t *testing.T, database, planted string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "secrets")
	for _, table := range tables {
		var found int
		name := pgx.Identifier{table}.Sanitize()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" r WHERE r::text LIKE '%' || $1 || '%'", planted).Scan(&found))
		require.Zero(t, found, "the planted secret is in %s", table)
	}
}

// processesAreClean looks for a secret in the arguments of our processes, which every user can
// read.
func (s *stack) processesAreClean(t *testing.T, planted string) {
	t.Helper()
	for pid, line := range s.processes() {
		require.NotContains(t, line, planted, "arguments of process %d", pid)
	}
}

// filesAreClean looks for a secret in every file that the system has written, including snapshots.
func (s *stack) filesAreClean(t *testing.T, planted string) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		if strings.Contains(string(raw), planted) {
			return fmt.Errorf("the planted secret is in %s", path)
		}
		return nil
	}))
	require.Greater(t, found, 50, "logs, histories, journals and snapshots were searched")
}
