package claude

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of Claude Code.
var tools = agent.Tools{
	"Bash":          {Kind: conversation.ToolExecute, Subject: []string{"command"}},
	"BashOutput":    {Kind: conversation.ToolOther, Subject: []string{"bash_id"}},
	"KillShell":     {Kind: conversation.ToolOther, Subject: []string{"shell_id"}},
	"Read":          {Kind: conversation.ToolRead, Path: []string{"file_path"}, Line: "offset"},
	"NotebookRead":  {Kind: conversation.ToolRead, Path: []string{"notebook_path"}},
	"LS":            {Kind: conversation.ToolRead, Path: []string{"path"}},
	"Write":         {Kind: conversation.ToolEdit, Path: []string{"file_path"}, New: "content"},
	"Edit":          {Kind: conversation.ToolEdit, Path: []string{"file_path"}, Old: "old_string", New: "new_string"},
	"MultiEdit":     {Kind: conversation.ToolEdit, Path: []string{"file_path"}, Old: "old_string", New: "new_string", Edits: "edits"},
	"NotebookEdit":  {Kind: conversation.ToolEdit, Path: []string{"notebook_path"}, New: "new_source"},
	"Glob":          {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"path"}},
	"Grep":          {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"path"}},
	"ToolSearch":    {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"WebSearch":     {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"WebFetch":      {Kind: conversation.ToolFetch, Subject: []string{"url"}},
	"TodoWrite":     {Kind: conversation.ToolThink},
	"TaskCreate":    {Kind: conversation.ToolThink, Subject: []string{"subject"}},
	"TaskUpdate":    {Kind: conversation.ToolThink},
	"ExitPlanMode":  {Kind: conversation.ToolThink},
	"EnterPlanMode": {Kind: conversation.ToolThink},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
