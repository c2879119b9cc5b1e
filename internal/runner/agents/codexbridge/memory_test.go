package codexbridge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// rollout returns the rollout of a thread with a prompt of a run, and its end.
func rollout(thread, parent, run, end string) string {
	lines := []string{`{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"id":"` + thread + `","parent_thread_id":"` + parent + `","history_mode":"paginated"}}`}
	if run != "" {
		lines = append(lines, `{"timestamp":"2026-01-01T00:00:01.000Z","type":"event_msg","payload":{"type":"item_completed","turn_id":"turn-1","item":{"type":"UserMessage","id":"i","client_id":"`+codexformat.ClientID(run, "prm_1", "")+`"}}}`)
	}
	return strings.Join(append(lines, end), "\n") + "\n"
}

// recalling returns a bridge in a home with these rollouts, by file name.
func recalling(t *testing.T, resume bool, rollouts map[string]string) *program {
	t.Helper()
	p := &program{home: t.TempDir(), delivered: map[string]*delivery{}, options: options{resume: resume}}
	dir := filepath.Join(p.home, "sessions/2026/01/01")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for name, data := range rollouts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rollout-"+name+".jsonl"), []byte(data), 0o600))
	}
	return p
}

func TestThreadOfNotebookIsResumed(t *testing.T) {
	t.Parallel()
	files := map[string]string{"1-aaa": rollout("aaa", "", "", ""), "2-bbb": rollout("bbb", "", "", "")}
	p := recalling(t, false, files)
	p.recall([]byte(`{"overwinter":{"type":"run","runId":"run_1","id":"aaa"}}` + "\n"))
	require.Equal(t, "aaa", p.thread)
	p = recalling(t, true, files)
	p.recall([]byte(`{"overwinter":{"type":"run","runId":"run_1","id":"lost"}}` + "\n"))
	require.Empty(t, p.thread, "a thread without its rollout cannot be resumed")
}

func TestWithoutNotebookNewestMainThreadIsResumed(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"1-aaa": rollout("aaa", "", "", ""), "2-bbb": rollout("bbb", "", "", ""), "3-ccc": rollout("ccc", "bbb", "", ""), "4-ddd": "no rollout\n",
	}
	p := recalling(t, true, files)
	p.recall(nil)
	require.Equal(t, "bbb", p.thread)
	p = recalling(t, false, files)
	p.recall(nil)
	require.Empty(t, p.thread, "a session without turns resumes nothing")
}

func TestPromptOutcomeIsRemembered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  string
		want *codexformat.KnownData
	}{
		"it completed":   {`{"type":"event_msg","payload":{"type":"task_complete","turn_id":"turn-1"}}`, &codexformat.KnownData{Outcome: session.OutcomeCompleted}},
		"it was aborted": {`{"type":"event_msg","payload":{"type":"turn_aborted","turn_id":"turn-1","reason":"interrupted"}}`, &codexformat.KnownData{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}},
		"another ended":  {`{"type":"event_msg","payload":{"type":"task_complete","turn_id":"turn-2"}}`, nil},
		"it has no end":  {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := recalling(t, true, map[string]string{"1-aaa": rollout("aaa", "", "run_1", c.end)})
			p.recall(nil)
			require.Len(t, p.delivered, 1)
			require.Equal(t, "turn-1", p.delivered["run_1"].turn)
			require.Equal(t, c.want, p.delivered["run_1"].verdict)
		})
	}
}

func TestPartialTurnEndIsIgnored(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "rollout.jsonl")
	require.False(t, hasEnd(name, "turn-1"), "there is no file")
	long := strings.Repeat(`{"type":"other"}`+"\n", tail/8)
	end := `{"type":"event_msg","payload":{"type":"task_complete","turn_id":"turn-1"}}`
	for _, c := range []struct {
		data string
		want bool
	}{
		{long, false}, {long + end, false}, {long + end + "\n", true}, {long + strings.Replace(end, "turn-1", "turn-2", 1) + "\n", false}, {end + "\n" + long, false},
	} {
		require.NoError(t, os.WriteFile(name, []byte(c.data), 0o600))
		require.Equal(t, c.want, hasEnd(name, "turn-1"), "%.100s", c.data[max(0, len(c.data)-100):])
	}
}
