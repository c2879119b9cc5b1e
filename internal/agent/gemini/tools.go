package gemini

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of Gemini CLI.
var tools = agent.Tools{
	"run_shell_command":   {Kind: conversation.ToolExecute, Subject: []string{"command", "title"}},
	"read_file":           {Kind: conversation.ToolRead, Path: []string{"file_path", "absolute_path"}, Line: "start_line"},
	"read_many_files":     {Kind: conversation.ToolRead, Subject: []string{"include", "paths"}},
	"list_directory":      {Kind: conversation.ToolRead, Path: []string{"dir_path", "path"}},
	"write_file":          {Kind: conversation.ToolEdit, Path: []string{"file_path"}, New: "content"},
	"replace":             {Kind: conversation.ToolEdit, Path: []string{"file_path"}, Old: "old_string", New: "new_string"},
	"glob":                {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"dir_path", "path"}},
	"grep_search":         {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"dir_path", "path"}},
	"search_file_content": {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"dir_path", "path"}},
	"google_web_search":   {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"web_fetch":           {Kind: conversation.ToolFetch, Subject: []string{"url", "prompt"}},
	"write_todos":         {Kind: conversation.ToolThink},
	"update_topic":        {Kind: conversation.ToolThink},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
