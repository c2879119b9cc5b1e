package opencode_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	localMain  = "ses_de502244fffeglz7jKItX7w2jm"
	localChild = "ses_de502244fffeglz7jKItX7w2jn"
	mainExport = `{
  "info": {"id": "ses_de502244fffeglz7jKItX7w2jm", "directory": "/home/ada/a", "time": {"created": 2}},
  "messages": [{"info": {"role": "assistant", "id": "msg_21afddf74001UILa1r1OzJ99Hb", "sessionID": "ses_de502244fffeglz7jKItX7w2jm"},
    "parts": [{"id": "prt_21afddf74001UILa1r1OzJ99Hc", "messageID": "msg_21afddf74001UILa1r1OzJ99Hb", "type": "tool", "tool": "task", "state": {"metadata": {"sessionId": "ses_de502244fffeglz7jKItX7w2jn"}}}]}]
}`
	childExport = `{"info": {"id": "ses_de502244fffeglz7jKItX7w2jn", "parentID": "ses_de502244fffeglz7jKItX7w2jm", "time": {"created": 3}}, "messages": []}`
)

// fakeProgram implements the commands of OpenCode that are used.
type fakeProgram struct {
	exports  map[string]string
	imported []string
}

func (p *fakeProgram) run(_ context.Context, _, _ string, args ...string) ([]byte, error) {
	switch args[0] {
	case "session":
		return []byte(`[{"id":"ses_other","directory":"/home/ada","updated":9},{"id":"ses_old","directory":"/home/ada/a","updated":1},{"id":"` + localMain + `","directory":"/home/ada/a","updated":2}]`), nil
	case "export":
		if e, ok := p.exports[args[1]]; ok {
			return []byte(e), nil
		}
		return nil, errors.New("session not found")
	case "import":
		data, err := os.ReadFile(args[1])
		p.imported = append(p.imported, string(data))
		return nil, err
	}
	return nil, errors.New("unknown command")
}

func TestSessionsMoveByProgramCommands(t *testing.T) {
	t.Parallel()
	here := &fakeProgram{exports: map[string]string{localMain: mainExport, localChild: childExport}}
	m := agenttest.Machine(t, nil)
	m.Run = here.run
	local := opencode.New().Local(m)
	list, err := local.List(t.Context(), "/home/ada/a")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, localMain, list[0].ID, "the newest of the directory")
	moved, err := local.Pack(t.Context(), "/home/ada/a", localMain)
	require.NoError(t, err)
	require.Len(t, moved.Files, 2)
	launch, err := opencode.New().Launch(agent.LaunchInput{SessionID: moved.MemoryID, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	require.Equal(t, strings.Replace(launch.Transcripts[0], "*", localMain, 1), moved.Files[0].Path)
	require.True(t, strings.HasPrefix(string(moved.Files[0].Data), `{"overwinter":true,"info":{"id":"`+localMain))

	// If the machine already has the session, the pulled one gets new ids, and none of the present
	// ones remains.
	moved.Files = append(moved.Files, transcript.File{Path: "/root/.local/share/overwinter/opencode/x.json", Data: []byte(mainExport)})
	id, err := local.Unpack(t.Context(), "/home/ada/b", moved)
	require.NoError(t, err)
	require.NotEqual(t, localMain, id)
	require.Equal(t, localMain[:16], id[:16], "they are ordered by the time in them")
	require.Len(t, here.imported, 2)
	all := strings.Join(here.imported, "")
	for _, own := range []string{localMain, localChild, "msg_21afddf74001UILa1r1OzJ99Hb", "prt_21afddf74001UILa1r1OzJ99Hc"} {
		require.NotContains(t, all, own)
	}
	require.Contains(t, here.imported[1], `"parentID":"`+id+`"`)

	there := &fakeProgram{}
	m.Run = there.run
	id, err = opencode.New().Local(m).Unpack(t.Context(), "/home/ada/b", moved)
	require.NoError(t, err)
	require.Equal(t, localMain, id)

	for _, wrong := range []string{"", "--help", "../x", "ses_a/b"} {
		_, err := local.Pack(t.Context(), "/home/ada/a", wrong)
		require.ErrorContains(t, err, "is not the id of a session")
	}
	_, err = local.Unpack(t.Context(), "/home/ada/b", agent.Moved{MemoryID: moved.MemoryID})
	require.ErrorIs(t, err, agent.ErrNoMemory)
}

// TestSandboxPermissionsAreNotMovedToMachine checks that permissions are removed, because the
// program keeps those of a session that it imports.
func TestSandboxPermissionsAreNotMovedToMachine(t *testing.T) {
	t.Parallel()
	const last = "msg_ffffffffff00UILa1r1OzJ99Hb"
	export := `{"overwinter":true,"info":{"id":"` + localMain + `","permission":[{"permission":"*","pattern":"*","action":"allow"},{"permission":"task","pattern":"*","action":"deny"}]},"messages":[
{"info":{"id":"msg_21afddf74001UILa1r1OzJ99Hb","sessionID":"` + localMain + `","role":"user","agent":"build","model":{"modelID":"m"}},"parts":[]},
{"info":{"id":"` + last + `","sessionID":"` + localMain + `","role":"assistant"},"parts":[]}]}`
	memory := session.DerivedID(session.SessionPrefix, "opencode", localMain)
	launch, err := opencode.New().Launch(agent.LaunchInput{SessionID: memory, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	p := &fakeProgram{}
	m := agenttest.Machine(t, nil)
	m.Run = p.run
	moved := agent.Moved{MemoryID: memory, Note: "now at home", Files: []transcript.File{
		{Path: strings.Replace(launch.Transcripts[0], "*", localMain, 1), Data: []byte(export)},
	}}
	_, err = opencode.New().Local(m).Unpack(t.Context(), "/home/ada/b", moved)
	require.NoError(t, err)
	require.Len(t, p.imported, 1)
	var got struct {
		Info struct {
			Permission []map[string]string `json:"permission"`
		} `json:"info"`
		Messages []struct {
			Info struct {
				ID    string            `json:"id"`
				Role  string            `json:"role"`
				Agent string            `json:"agent"`
				Model map[string]string `json:"model"`
			} `json:"info"`
			Parts []struct {
				ID        string `json:"id"`
				MessageID string `json:"messageID"`
				Text      string `json:"text"`
				Synthetic bool   `json:"synthetic"`
			} `json:"parts"`
		} `json:"messages"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.imported[0]), &got))
	require.Equal(t, []map[string]string{{"permission": "task", "pattern": "*", "action": "deny"}}, got.Info.Permission)
	require.Len(t, got.Messages, 3)
	note := got.Messages[2]
	require.Greater(t, note.Info.ID, last, "the program orders messages by their ids")
	require.Len(t, note.Info.ID, len(last))
	require.Equal(t, "user", note.Info.Role)
	require.Equal(t, "build", note.Info.Agent)
	require.Equal(t, "m", note.Info.Model["modelID"])
	require.Len(t, note.Parts, 1)
	require.Equal(t, note.Info.ID, note.Parts[0].MessageID)
	require.Equal(t, "<system-reminder>\nnow at home\n</system-reminder>", note.Parts[0].Text)
	require.True(t, note.Parts[0].Synthetic)
}
