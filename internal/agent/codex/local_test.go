package codex_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	localThread = "01a21afc-0804-7c30-8c81-a40d4c64d5e3"
	localChild  = "01a21afc-0804-7c30-8c81-a40d4c64d5e4"
	otherThread = "01a21afc-0804-7c30-8c81-a40d4c64d5e5"
	atHome      = `/home/ada/a "b"`
)

func rolloutOf(id, parent, dir, provider string) (name, data string) {
	return ".codex/sessions/2026/11/27/rollout-2026-11-27T03-10-54-" + id + ".jsonl",
		fmt.Sprintf(`{"timestamp":"2026-11-27T03:10:54.618Z","ordinal":0,"type":"session_meta","payload":{"session_id":%q,"id":%q,"parent_thread_id":%q,"cwd":%q,"runtime_workspace_roots":[%q],"model_provider":%q}}
{"timestamp":"2026-11-27T03:10:54.618Z","type":"turn_context","payload":{"cwd":%q,"model":"gpt-5.5"}}
{"timestamp":"2026-11-27T03:10:54.618Z","type":"event_msg","payload":{"type":"thread_settings_applied","thread_id":%q,"thread_settings":{"model_provider_id":%q,"cwd":%q}}}
{"timestamp":"2026-11-27T03:10:54.618Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"in %s"}]}}
`, id, id, parent, dir, dir+"/sub", provider, dir, id, provider, dir, "/workspace")
}

// withoutSettings returns a rollout without the lines that contain the settings of a turn.
func withoutSettings(rollout string) string {
	lines := strings.SplitAfter(rollout, "\n")
	return lines[0] + lines[3]
}

func TestSessionsMoveBetweenMachineAndSandbox(t *testing.T) {
	t.Parallel()
	files := map[string]string{".codex/config.toml": "# mine\nmodel_provider = \"mine\"\n\n[profiles.x]\nmodel_provider = \"not this\"\n"}
	for _, r := range [][3]string{{localThread, "", atHome}, {localChild, localThread, atHome}, {otherThread, "", "/elsewhere"}} {
		name, data := rolloutOf(r[0], r[1], r[2], "mine")
		files[name] = data
	}
	m := agenttest.Machine(t, files)
	local := codex.New().Local(m)
	list, err := local.List(t.Context(), atHome)
	require.NoError(t, err)
	require.Len(t, list, 1, "subagents and other directories have others")
	require.Equal(t, localThread, list[0].ID)

	moved, err := local.Pack(t.Context(), atHome, localThread)
	require.NoError(t, err)
	require.Len(t, moved.Files, 2)
	launch, err := codex.New().Launch(agent.LaunchInput{SessionID: moved.MemoryID, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	for i, id := range []string{localThread, localChild} {
		match, err := doublestar.Match(launch.Transcripts[0], moved.Files[i].Path)
		require.NoError(t, err)
		require.True(t, match, moved.Files[i].Path)
		parent := ""
		if i > 0 {
			parent = localThread
		}
		_, want := rolloutOf(id, parent, "/workspace", "overwinter")
		require.Equal(t, want, string(moved.Files[i].Data))
	}

	// The machine still has the session, so the pulled one gets new ids; its messages are
	// unchanged.
	moved.Files = append(moved.Files, transcript.File{Path: "/root/.codex/config.toml", Data: []byte("x")},
		transcript.File{Path: "/root/.codex/sessions/2026/11/27/rollout-2026-11-27T03-10-54-" + otherThread + ".jsonl", Data: []byte("{}\n")})
	id, err := local.Unpack(t.Context(), "/home/ada/b", moved)
	require.NoError(t, err)
	require.NotEqual(t, localThread, id)
	list, err = local.List(t.Context(), "/home/ada/b")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, id, list[0].ID)
	name, want := rolloutOf(id, "", "/home/ada/b", "mine")
	want = withoutSettings(want)
	data, err := os.ReadFile(filepath.Join(m.Home, name))
	require.NoError(t, err)
	require.Equal(t, want, string(data))
	first, was := rolloutOf(localThread, "", atHome, "mine")
	data, err = os.ReadFile(filepath.Join(m.Home, first))
	require.NoError(t, err)
	require.Equal(t, was, string(data), "the session of the machine is as it was")

	// Another machine has the session under the same id, with its own provider.
	other := agenttest.Machine(t, nil)
	id, err = codex.New().Local(other).Unpack(t.Context(), atHome, moved)
	require.NoError(t, err)
	require.Equal(t, localThread, id)
	data, err = os.ReadFile(filepath.Join(other.Home, first))
	require.NoError(t, err)
	_, want = rolloutOf(localThread, "", atHome, "openai")
	require.Equal(t, withoutSettings(want), string(data))
	written, err := filepath.Glob(filepath.Join(other.Home, ".codex/*"))
	require.NoError(t, err)
	require.Len(t, written, 1, "nothing but rollouts: %v", written)

	_, err = local.Pack(t.Context(), atHome, "../x")
	require.ErrorContains(t, err, "is not the id of a session")
	_, err = local.Unpack(t.Context(), atHome, agent.Moved{MemoryID: moved.MemoryID})
	require.ErrorIs(t, err, agent.ErrNoMemory)
}

// TestThreadOfNotebookIsMainOne checks that the thread in the notebook takes precedence
// over a newer one.
func TestThreadOfNotebookIsMainOne(t *testing.T) {
	t.Parallel()
	moved := agent.Moved{MemoryID: "ses_" + strings.Repeat("0", 32)}
	for _, id := range []string{localThread, otherThread} {
		name, data := rolloutOf(id, "", "/workspace", "overwinter")
		moved.Files = append(moved.Files, transcript.File{Path: "/root/" + name, Data: []byte(data)})
	}
	id, err := codex.New().Local(agenttest.Machine(t, nil)).Unpack(t.Context(), atHome, moved)
	require.NoError(t, err)
	require.Equal(t, otherThread, id, "the newest")
	moved.Files = append(moved.Files, transcript.File{
		Path: "/root/.codex/overwinter/" + moved.MemoryID + ".jsonl",
		Data: []byte(`{"overwinter":{"type":"run","runId":"run_1","id":"` + localThread + `"}}` + "\n"),
	})
	id, err = codex.New().Local(agenttest.Machine(t, nil)).Unpack(t.Context(), atHome, moved)
	require.NoError(t, err)
	require.Equal(t, localThread, id)
}

// TestSandboxPermissionsAreNotMovedToMachine uses a rollout that the agent may have written
// itself.
func TestSandboxPermissionsAreNotMovedToMachine(t *testing.T) {
	t.Parallel()
	name, data := rolloutOf(localThread, "", "/workspace", "overwinter")
	data = strings.Replace(data, `"runtime_workspace_roots":["/workspace/sub"]`, `"runtime_workspace_roots":["/workspace/sub","/home/ada/.ssh"]`, 1) +
		`{"timestamp":"2026-11-27T03:10:54.618Z","ordinal":4,"payload":{"padding":"` + strings.Repeat("x", 300) + `","approval_policy":"never"},"type":"turn\u005fcontext"}
{"timestamp":"2026-11-27T03:10:54.618Z","ordinal":6,"type":"event_msg","payload":{"thread_settings":{"approval_policy":"never"},"type":"thread_settings_applied"}}
{"timestamp":"2026-11-27T03:10:54.618Z","ordinal":7,"type":"event_msg","payload":{"type":"task_complete"}}
`
	m := agenttest.Machine(t, nil)
	moved := agent.Moved{
		MemoryID: "ses_" + strings.Repeat("0", 32), Note: `now in "b"`,
		Files: []transcript.File{{Path: "/root/" + name, Data: []byte(data)}},
	}
	_, err := codex.New().Local(m).Unpack(t.Context(), "/home/ada/b", moved)
	require.NoError(t, err)
	written, err := os.ReadFile(filepath.Join(m.Home, name))
	require.NoError(t, err)
	require.NotContains(t, string(written), "never")
	require.NotContains(t, string(written), ".ssh")
	lines := strings.Split(strings.TrimSpace(string(written)), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], `"runtime_workspace_roots":["/home/ada/b"]`)
	require.Contains(t, lines[2], "task_complete")
	require.Contains(t, lines[3], `"ordinal":8,`)
	require.Contains(t, lines[3], `"role":"developer"`)
	require.Contains(t, lines[3], `\nnow in \"b\"\n`)
}

// TestCompressedRolloutsAreMoved covers old rollouts, which the program compresses if configured
// to.
func TestCompressedRolloutsAreMoved(t *testing.T) {
	t.Parallel()
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	name, data := rolloutOf(localThread, "", atHome, "mine")
	child, childData := rolloutOf(localChild, localThread, atHome, "mine")
	m := agenttest.Machine(t, map[string]string{
		name + ".zst": string(encoder.EncodeAll([]byte(data), nil)),
		child:         childData, child + ".zst": "being written",
	})
	local := codex.New().Local(m)
	list, err := local.List(t.Context(), atHome)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, localThread, list[0].ID)
	moved, err := local.Pack(t.Context(), atHome, localThread)
	require.NoError(t, err)
	require.Len(t, moved.Files, 2)
	for _, f := range moved.Files {
		_, want := rolloutOf(localThread, "", "/workspace", "overwinter")
		if strings.Contains(f.Path, localChild) {
			_, want = rolloutOf(localChild, localThread, "/workspace", "overwinter")
		}
		require.Equal(t, want, string(f.Data))
		require.True(t, strings.HasSuffix(f.Path, ".jsonl"), f.Path)
	}

	bomb := encoder.EncodeAll(append([]byte(data), make([]byte, transcript.MaxRevertBytes)...), nil)
	require.NoError(t, os.WriteFile(filepath.Join(m.Home, name+".zst"), bomb, 0o600))
	_, err = local.Pack(t.Context(), atHome, localThread)
	require.Error(t, err)
}
