package claude_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	localID = "0196f1a0-1111-4222-8333-444455556666"
	project = ".claude/projects/-home-ada-my-project-2/"
	atHome  = "/home/ada/my project_2"
)

func TestSessionsOfMachineAreFoundInSandbox(t *testing.T) {
	t.Parallel()
	local := claude.New().Local(agenttest.Machine(t, map[string]string{
		project + localID + ".jsonl":                           "{\"a\":1}\n{\"half",
		project + localID + "/subagents/agent-1.jsonl":         "{}\n",
		project + localID + "/subagents/agent-1.meta.json":     "{}",
		project + "notes.jsonl":                                "{}\n",
		".claude/projects/-home-ada/" + localID + ".jsonl":     "{}\n",
		project + "0196F1A0-1111-4222-8333-444455556666.jsonl": "{}\n",
	}))
	list, err := local.List(t.Context(), atHome)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, localID, list[0].ID)
	moved, err := local.Pack(t.Context(), atHome, localID)
	require.NoError(t, err)
	launch, err := claude.New().Launch(agent.LaunchInput{SessionID: moved.MemoryID, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	require.Contains(t, launch.Argv, localID, "the sandbox resumes the session of the machine")
	require.Len(t, moved.Files, 3)
	require.Equal(t, transcript.File{Path: strings.Replace(launch.Transcripts[0], "*", "-workspace", 1), Data: []byte("{\"a\":1}\n")}, moved.Files[0])

	for _, wrong := range []string{"", "notes", "0196F1A0-1111-4222-8333-444455556666", localID + "/.."} {
		_, err := local.Pack(t.Context(), atHome, wrong)
		require.Error(t, err, wrong)
	}
	_, err = local.Unpack(t.Context(), atHome, moved)
	require.ErrorContains(t, err, "exists already")

	other := agenttest.Machine(t, nil)
	moved.Files = append(moved.Files, transcript.File{Path: "/root/.claude/projects/-workspace/settings.json"},
		transcript.File{Path: "/root/.claude/projects/-workspace/" + localID + "/subagents/../../x.jsonl"}, transcript.File{Path: "/root/.bashrc"})
	id, err := claude.New().Local(other).Unpack(t.Context(), atHome, moved)
	require.NoError(t, err)
	require.Equal(t, localID, id)
	written, err := filepath.Glob(filepath.Join(other.Home, ".claude/projects/*/*"))
	require.NoError(t, err)
	require.Len(t, written, 2, "nothing but the session: %v", written)
	data, err := os.ReadFile(filepath.Join(other.Home, project, localID+".jsonl"))
	require.NoError(t, err)
	require.Equal(t, "{\"a\":1}\n", string(data))

	moved.Files = nil
	_, err = claude.New().Local(other).Unpack(t.Context(), "/elsewhere", moved)
	require.ErrorIs(t, err, agent.ErrNoMemory)
}

// TestFoldersOfDirectoriesAreNamedAsProgramDoes uses names that the program itself has made.
func TestFoldersOfDirectoriesAreNamedAsProgramDoes(t *testing.T) {
	t.Parallel()
	local := claude.New().Local(agenttest.Machine(t, nil))
	for dir, want := range map[string]string{
		"/a/ü😀b":                                        "-a----b",
		"/home/ada/" + strings.Repeat("x", 300):         "-home-ada-" + strings.Repeat("x", 190) + "-h5vupe",
		"/home/ada/" + strings.Repeat("directory/", 30): "-home-ada-" + strings.Repeat("directory-", 19) + "-1uaguq",
	} {
		require.Equal(t, want, filepath.Base(filepath.Dir(local.Where(dir))))
	}
}

// TestSandboxPermissionsAreNotMovedToMachine checks that the permission mode of the sandbox is
// removed, because the program would resume in it.
func TestSandboxPermissionsAreNotMovedToMachine(t *testing.T) {
	t.Parallel()
	m := agenttest.Machine(t, nil)
	const where = "/root/.claude/projects/-workspace/"
	moved := agent.Moved{MemoryID: "ses_" + strings.ReplaceAll(localID, "-", ""), Note: "now at home", Files: []transcript.File{
		{Path: where + localID + ".jsonl", Data: []byte(`{"type":"user","uuid":"u1","version":"2.1.329","permissionMode":"bypassPermissions","message":{"role":"user","content":"a < b"}}
{"type":"user","uuid":"u2","version":"2.1.329","permissionM\u006fde":"acceptEdits"}
{"type":"user","uuid":"u3","version":"2.1.329","permissionMode":"plan"}
{"type":"permission-mode","permissionMode":"bypassPermissions"}
{"type":"user","uuid":"u4","isSidechain":true}
{"type":"last-prompt"}
`)},
		{Path: where + localID + "/subagents/agent-1.jsonl", Data: []byte(`{"type":"user","uuid":"s1","permissionMode":"bypassPermissions"}` + "\n")},
	}}
	_, err := claude.New().Local(m).Unpack(t.Context(), atHome, moved)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(m.Home, project, localID+".jsonl"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Len(t, lines, 6)
	require.JSONEq(t, `{"type":"user","uuid":"u1","version":"2.1.329","permissionMode":"default","message":{"role":"user","content":"a < b"}}`, lines[0])
	require.JSONEq(t, `{"type":"user","uuid":"u2","version":"2.1.329","permissionMode":"default"}`, lines[1])
	require.Contains(t, lines[2], `"plan"`)
	var note map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[5]), &note))
	require.Equal(t, "u3", note["parentUuid"], "it follows the newest line of the main conversation")
	require.Equal(t, map[string]any{"role": "user", "content": "<system-reminder>\nnow at home\n</system-reminder>"}, note["message"])
	require.Equal(t, []any{true, localID, atHome, "2.1.329"}, []any{note["isMeta"], note["sessionId"], note["cwd"], note["version"]})
	data, err = os.ReadFile(filepath.Join(m.Home, project, localID, "subagents/agent-1.jsonl"))
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"user","uuid":"s1","permissionMode":"default"}`, string(data))
}
