package gemini

import (
	"bytes"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Reverter = Adapter{}

// Revert truncates the notebook before the run's first note. The notebook is append-only, and at
// each start the bridge generates the program's chat from it.
func (Adapter) Revert(files []transcript.File, runID string) (agent.Reverted, error) {
	var out agent.Reverted
	found := false
	for _, f := range files {
		kept := 0
		for line := range bytes.Lines(f.Data) {
			if n, ok := stdio.ParseNote(line); ok && n.RunID == runID {
				found = true
				break
			}
			kept += len(line)
		}
		f.Data = f.Data[:kept]
		out.Files = append(out.Files, f)
	}
	if !found {
		return agent.Reverted{}, fmt.Errorf("revert Gemini CLI: run %s is not in its notebook", runID)
	}
	return out, nil
}
