package agenttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// saved is the content of a session's bundle, taken after its agent was stopped: the home, the
// workspace, and the runs so far.
type saved struct {
	home, workspace string
	runs            []*run
}

func (b *bench) save(t *testing.T) saved {
	t.Helper()
	b.close(t)
	s := saved{home: filepath.Join(t.TempDir(), "home"), workspace: filepath.Join(t.TempDir(), "workspace"), runs: slices.Clone(b.runs)}
	copyTree(t, b.home, s.home)
	copyTree(t, b.workspace, s.workspace)
	return s
}

// fork returns another session that starts from saved. The agent finds its memory at the same
// paths, under the id of the session that created it. Only one of the two sessions can use these
// paths: the original's files are moved aside until the returned function restores them.
func (b *bench) fork(t *testing.T, s saved) (f *bench, back func()) {
	t.Helper()
	b.close(t)
	swap := map[string]string{b.home: s.home, b.workspace: s.workspace}
	for place, copied := range swap {
		require.NoError(t, os.Rename(place, place+".original"))
		require.NoError(t, os.Rename(copied, place))
	}
	f = &bench{Harness: b.Harness, sessionID: b.sessionID, home: b.home, workspace: b.workspace, runs: s.runs, checked: b.checked, launched: true}
	return f, func() {
		f.close(t)
		for place := range swap {
			require.NoError(t, os.Rename(place, place+".fork"))
			require.NoError(t, os.Rename(place+".original", place))
		}
	}
}

// copyTree copies a directory with the times and modes of its files, as a snapshot does.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// continuesInFork forks the session between two of its prompts. The fork has the memory and the files
// of that point, and the original continues as if it had not been forked.
func continuesInFork(t *testing.T, b *bench) {
	b.turn(t, b.Prompts.Hello)
	b.turn(t, b.Prompts.WriteFile)
	before := b.remembers(t)
	file := filepath.Join(b.workspace, "of-the-point.txt") // not every agent has tools
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	point := b.save(t)
	require.NoError(t, os.Remove(file))

	f, back := b.fork(t, point)
	require.FileExists(t, file)
	require.Equal(t, before+1, f.remembers(t), "this prompt")
	f.turn(t, f.Prompts.WriteFile)
	require.Equal(t, before+3, f.remembers(t))
	f.check(t)
	back()

	b.turn(t, b.Prompts.Hello)
	require.Equal(t, before+2, b.remembers(t))
	require.NoFileExists(t, file)
	b.check(t)
}

// counted matches the number of prompts in an agent's answer.
var counted = regexp.MustCompile(`(\d+) prompts`)

// remembers asks for the first prompt of the session and the number of its prompts. If the agent does
// not state the number, it is that of the runs.
func (b *bench) remembers(t *testing.T) int {
	t.Helper()
	r := b.turn(t, b.Prompts.Recall)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	answer := only(t, r, conversation.AssistantText).Content
	require.Contains(t, answer, Word)
	match := counted.FindStringSubmatch(answer)
	if match == nil {
		return len(b.runs)
	}
	n, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	return n
}
