package demo

import (
	"bytes"
	"fmt"
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Reverter = Adapter{}

// Revert truncates the transcript before the run's prompt, and drops the subagents that were called
// after it.
func (Adapter) Revert(files []transcript.File, runID string) (agent.Reverted, error) {
	var out agent.Reverted
	called := map[string]bool{}
	found := false
	for _, f := range files {
		if path.Base(f.Path) != demoformat.MainFile {
			continue
		}
		kept := 0
		for raw := range bytes.Lines(f.Data) {
			l, ok := demoformat.DecodeLine(raw)
			if ok && l.Type == demoformat.LineUser && l.RunID == runID {
				found = true
				break
			}
			if ok && l.Subagent != "" {
				called[l.Subagent] = true
			}
			kept += len(raw)
		}
		f.Data = f.Data[:kept]
		out.Files = append(out.Files, f)
	}
	if !found {
		return agent.Reverted{}, fmt.Errorf("revert demo agent: run %s is not in its transcript", runID)
	}
	for _, f := range files {
		id, ok := subagentOf(f.Path)
		switch {
		case path.Base(f.Path) == demoformat.MainFile:
		case !ok || called[id]:
			out.Files = append(out.Files, f)
		}
	}
	return out, nil
}
