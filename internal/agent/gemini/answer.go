package gemini

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

// calledWith returns the input of a call that waits for permission. The program reports it only in
// the title and in the change of a file. For other tools the input is the title and the files.
func calledWith(u geminiformat.Update, title string) json.RawMessage {
	type object = map[string]any
	if name := geminiformat.ToolName(u.ID); name == shellTool {
		return geminiformat.Data(object{"command": title})
	} else if d, ok := changed(u.Content); ok {
		switch name {
		case writeTool:
			return geminiformat.Data(object{"file_path": d.Path, "content": d.New})
		case replaceTool:
			return geminiformat.Data(object{"file_path": d.Path, "old_string": d.Old, "new_string": d.New})
		}
	}
	input := object{"title": title}
	if len(u.Locations) > 0 && string(u.Locations) != "null" && string(u.Locations) != "[]" {
		input["locations"] = u.Locations
	}
	return geminiformat.Data(input)
}

// The tools whose input is derived from the program's description.
const (
	shellTool   = "run_shell_command"
	writeTool   = "write_file"
	replaceTool = "replace"
)

// change is the effect of a call on a file.
type change struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Old  string `json:"oldText"`
	New  string `json:"newText"`
}

// changed returns the change of a file in the content of a call.
func changed(content json.RawMessage) (change, bool) {
	var parts []change
	geminiformat.Decode(content, &parts)
	for _, c := range parts {
		if c.Type == "diff" && c.Path != "" {
			return c, true
		}
	}
	return change{}, false
}
