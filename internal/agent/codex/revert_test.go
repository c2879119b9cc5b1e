package codex_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// saved returns the agent's transcript files.
func (p *cli) saved(t *testing.T) []transcript.File {
	t.Helper()
	var files []transcript.File
	for _, pattern := range p.launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, transcript.File{Path: name, Data: data})
		}
	}
	return files
}

// revert reverts the stopped agent to its state before a run.
func (p *cli) revert(t *testing.T, run string) []transcript.File {
	t.Helper()
	files := p.saved(t)
	reverted, err := codex.New().Revert(files, run)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Remove(f.Path))
	}
	for _, name := range reverted.Remove {
		require.True(t, strings.HasPrefix(name, p.in.Home), name)
		require.NoError(t, os.RemoveAll(name))
	}
	for _, f := range reverted.Files {
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	return reverted.Files
}

func TestRevertedPromptsAreNotSentToModel(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: newest}, map[string][]modelserver.Step{
		"delegate": {{Calls: []modelserver.Call{modelserver.Spawn("helper", "{{child}}")}}, {Text: "It is at work."}},
		"child":    {{Text: "I have looked."}},
		"say":      {{Text: "I have said it."}},
		"recall":   {{Recall: true}},
	})
	p.turn(t, "{{delegate}} it", nil)
	kept := p.events
	p.turn(t, "{{say}} the regretted word", nil)
	run := p.run
	p.turn(t, "{{delegate}} another regretted thing", nil)
	p.Close(t)

	left := p.revert(t, run)
	require.Len(t, left, 3, "the notebook, the main thread and its first subagent")
	for _, f := range left {
		require.NotContains(t, string(f.Data), "regretted", f.Path)
	}
	p.events = kept
	p.in.Resume = true
	p.begin(t)
	r := p.turn(t, "{{recall}} the beginning", nil)
	require.Contains(t, r.All("assistant_text")[0].Content, "2 prompts; the first was: {{delegate}} it")
	p.agree(t)
}

func TestRevertToBeginningStartsFresh(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{"recall": {{Recall: true}}})
	p.turn(t, "{{recall}} first", nil)
	run := p.run
	p.turn(t, "{{recall}} second", nil)
	p.Close(t)
	require.Empty(t, p.revert(t, run))
	p.events, p.in.Resume = nil, true
	p.begin(t)
	r := p.turn(t, "{{recall}} third", nil)
	require.Contains(t, r.All("assistant_text")[0].Content, "1 prompts; the first was: {{recall}} third")
	p.agree(t)
}

func TestRevertWithoutNotebookKeepsNone(t *testing.T) {
	t.Parallel()
	_, err := codex.New().Revert(nil, "run_1")
	require.Error(t, err)
	const turn = `{"timestamp":"2026-11-21T10:00:0%d.000Z","type":"event_msg","payload":{"type":"task_started","turn_id":"%d"}}` + "\n"
	line := func(second string) string { return strings.ReplaceAll(turn, "%d", second) }
	item := `{"timestamp":"2026-11-21T10:00:02.001Z","type":"event_msg","payload":{"type":"item_completed","turn_id":"2","item":{"type":"UserMessage","id":"u","client_id":"run_1/prm/ada","content":[]}}}` + "\n"
	meta := `{"timestamp":"2026-11-21T10:00:00.000Z","type":"session_meta","payload":{"id":"t"}}` + "\n"
	reverted, err := codex.New().Revert([]transcript.File{
		{Path: "/h/.codex/overwinter/ses_1.jsonl", Data: []byte("{\"overwinter\":{\"type\":\"run\",\"runId\":\"run_0\"}}\n")},
		{Path: "/h/.codex/sessions/2026/11/21/rollout-1-t.jsonl", Data: []byte(meta + line("1") + line("2") + item + line("3"))},
		{Path: "/h/.codex/sessions/2026/11/21/rollout-2-u.jsonl", Data: []byte(meta + line("2") + line("3"))},
	}, "run_1")
	require.NoError(t, err)
	require.Equal(t, []transcript.File{
		{Path: "/h/.codex/sessions/2026/11/21/rollout-1-t.jsonl", Data: []byte(meta + line("1"))},
	}, reverted.Files)
	require.Contains(t, reverted.Remove, "/h/.codex/state_5.sqlite-wal")
	_, err = codex.New().Revert(reverted.Files, "run_1")
	require.Error(t, err)
}
