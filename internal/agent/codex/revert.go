package codex

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Reverter = Adapter{}

// databases are the files that the agent keeps next to its rollouts: an index, which it rebuilds,
// and goals and waits of threads, which may belong to reverted turns. A new sandbox has none of
// them.
var databases = []string{"state_5", "thread_history_1", "goals_1", "memories_1", "queue_1"}

// Revert truncates every rollout, including those of subagents, before the first turn that began
// with the run's turn or later, and the notebook before the note of the run. It drops rollouts
// without a remaining turn. The agent reads the result like any other rollouts.
func (Adapter) Revert(files []transcript.File, runID string) (agent.Reverted, error) {
	cut, ok := begunAt(files, runID)
	if !ok {
		return agent.Reverted{}, fmt.Errorf("revert Codex: run %s is not in its rollouts", runID)
	}
	var out agent.Reverted
	homes := map[string]bool{}
	for _, f := range files {
		if isNotebook(f.Path) {
			f.Data = f.Data[:lengthBefore(f.Data, runID)]
		} else {
			home, _, _ := strings.Cut(filepath.ToSlash(f.Path), "/sessions/")
			if !homes[home] {
				homes[home] = true
				out.Remove = append(out.Remove, indexes(home)...)
			}
			f.Data = f.Data[:turnsBefore(f.Data, cut)]
		}
		if len(f.Data) > 0 {
			out.Files = append(out.Files, f)
		}
	}
	return out, nil
}

// indexes returns the files of the agent's databases.
func indexes(home string) []string {
	var names []string
	for _, d := range databases {
		for _, suffix := range []string{"", "-shm", "-wal"} {
			names = append(names, path.Join(home, d+".sqlite"+suffix))
		}
	}
	return names
}

// begunAt returns when the turn of a run began.
func begunAt(files []transcript.File, runID string) (time.Time, bool) {
	for _, f := range files {
		if isNotebook(f.Path) {
			continue
		}
		began := map[string]time.Time{} // by turn
		for line := range bytes.Lines(f.Data) {
			l, ok := codexformat.DecodeRecord(line)
			if !ok || l.Type != "event_msg" {
				continue
			}
			switch {
			case l.Begins():
				began[l.Payload.Turn] = l.Time()
			case l.Payload.Type == "item_completed" && bytes.Contains(line, []byte(runID)):
				it, ok := codexformat.DecodeItem(l.Payload.Item)
				if run, _, _ := codexformat.ParseClientID(it.Client); !ok || run != runID {
					continue
				}
				if at, ok := began[l.Payload.Turn]; ok {
					return at, true
				}
				return l.Time(), true
			}
		}
	}
	return time.Time{}, false
}

// turnsBefore returns the length of a rollout up to the first turn that began at that time or
// later; 0 if no turn remains.
func turnsBefore(rollout []byte, cut time.Time) int {
	at, turns := 0, 0
	for line := range bytes.Lines(rollout) {
		if l, ok := codexformat.DecodeRecord(line); ok && l.Type == "event_msg" && l.Begins() {
			if !l.Time().Before(cut) {
				break
			}
			turns++
		}
		at += len(line)
	}
	if turns == 0 {
		return 0
	}
	return at
}

// lengthBefore returns the length of a notebook up to the note of a run; 0 if it has none, because
// then it is unknown which part of it is still valid.
func lengthBefore(notebook []byte, runID string) int {
	at := 0
	for line := range bytes.Lines(notebook) {
		if n, ok := stdio.ParseNote(bytes.TrimSpace(line)); ok && n.Type == stdio.NoteRun && n.RunID == runID {
			return at
		}
		at += len(line)
	}
	return 0
}
