package claude

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Reverter = Adapter{}

// Revert truncates the transcript before the run's first message, by its uuid, and drops the files
// of subagents that the remaining lines do not name. The program continues from the last remaining
// line.
func (Adapter) Revert(files []transcript.File, runID string) (agent.Reverted, error) {
	var out agent.Reverted
	var kept []byte
	found := false
	uuid := []byte(messageUUID(runID, 0))
	for _, f := range files {
		if isSubagentFile(f.Path) {
			continue
		}
		at := 0
		for raw := range bytes.Lines(f.Data) {
			if bytes.Contains(raw, uuid) && isMessage(raw, uuid) {
				found = true
				break
			}
			at += len(raw)
		}
		f.Data = f.Data[:at]
		kept = append(kept, f.Data...)
		out.Files = append(out.Files, f)
	}
	if !found {
		return agent.Reverted{}, fmt.Errorf("revert Claude Code: run %s is not in its transcript", runID)
	}
	for _, f := range files {
		if isSubagentFile(f.Path) && bytes.Contains(kept, []byte(subagentOf(f.Path))) {
			out.Files = append(out.Files, f)
		}
	}
	return out, nil
}

// isMessage reports whether a line is the message with that uuid, sent between turns or during one.
func isMessage(raw, uuid []byte) bool {
	kind := jsonscan.Field(raw, "type")
	switch {
	case jsonscan.Is(kind, "user"):
		return jsonscan.Is(jsonscan.Field(raw, "uuid"), string(uuid))
	case jsonscan.Is(kind, "attachment"):
		return jsonscan.Is(jsonscan.Field(jsonscan.Field(raw, "attachment"), "source_uuid"), string(uuid))
	}
	return false
}

func isSubagentFile(name string) bool { return path.Base(path.Dir(name)) == subagentDir }

// subagentOf returns the id of the subagent to which a file belongs.
func subagentOf(name string) string {
	base := path.Base(name)
	base = strings.TrimSuffix(strings.TrimSuffix(base, metaSuffix), ".jsonl")
	return strings.TrimPrefix(base, "agent-")
}
