package opencode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Reverter = Adapter{}

// Revert truncates the main session before the run's message and drops the sessions of subagents
// that began after it. It deletes OpenCode's database, so that the session is imported again.
func (Adapter) Revert(files []transcript.File, runID string) (agent.Reverted, error) {
	cut := -1
	var from opencodeformat.Message
	for i, f := range files {
		if at, m, ok := messageOf(f.Data, runID); ok {
			cut, from = i, m
			files = replaced(files, i, at)
			break
		}
	}
	if cut < 0 {
		return agent.Reverted{}, fmt.Errorf("revert OpenCode: run %s is not in its sessions", runID)
	}
	gone := map[string]bool{}
	for more := true; more; { // a subagent's own subagents are dropped too
		more = false
		for _, f := range files {
			info, _, err := opencodeformat.ExportInfo(f.Data)
			later := info.ParentID == from.SessionID && info.Time.Created >= from.Time.Created
			if err == nil && info.ParentID != "" && !gone[info.ID] && (later || gone[info.ParentID]) {
				gone[info.ID], more = true, true
			}
		}
	}
	var out agent.Reverted
	for _, f := range files {
		if info, _, err := opencodeformat.ExportInfo(f.Data); err == nil && gone[info.ID] {
			continue
		}
		out.Files = append(out.Files, f)
	}
	// The files are in <data>/overwinter/opencode/<session>.
	data := path.Dir(path.Dir(path.Dir(path.Dir(files[cut].Path))))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		out.Remove = append(out.Remove, path.Join(data, opencodeformat.DatabaseName+suffix))
	}
	return out, nil
}

// rawExport is an export with its messages undecoded.
type rawExport struct {
	Info     json.RawMessage   `json:"info"`
	Messages []json.RawMessage `json:"messages"`
}

// messageOf finds the message of a run in an export, and returns the export truncated before it.
func messageOf(data []byte, runID string) (shortened []byte, m opencodeformat.Message, ok bool) {
	var e rawExport
	if json.Unmarshal(data, &e) != nil {
		return nil, opencodeformat.Message{}, false
	}
	for i, raw := range e.Messages {
		var x opencodeformat.Exported
		if json.Unmarshal(raw, &x) != nil || !x.Info.FromUser() || !opencodeformat.IsMessageOf(x.Info.ID, runID) {
			continue
		}
		var b bytes.Buffer
		b.WriteString(`{"overwinter":true,"info":`)
		b.Write(e.Info)
		b.WriteString(`,"messages":[`)
		b.Write(bytes.Join(rawBytes(e.Messages[:i]), []byte(",")))
		b.WriteString("]}\n")
		return b.Bytes(), x.Info, true
	}
	return nil, opencodeformat.Message{}, false
}

func rawBytes(raws []json.RawMessage) [][]byte {
	out := make([][]byte, len(raws))
	for i, r := range raws {
		out[i] = r
	}
	return out
}

// replaced returns the files with the data of one replaced.
func replaced(files []transcript.File, i int, data []byte) []transcript.File {
	out := append([]transcript.File(nil), files...)
	out[i].Data = data
	return out
}
