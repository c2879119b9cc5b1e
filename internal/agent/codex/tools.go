package codex

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of Codex.
var tools = agent.Tools{
	"exec_command": {Kind: conversation.ToolExecute, Subject: []string{"command"}},
	"write_stdin":  {Kind: conversation.ToolExecute},
	"apply_patch":  {Kind: conversation.ToolEdit},
	"view_image":   {Kind: conversation.ToolRead, Path: []string{"path"}},
	"web_search":   {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"update_plan":  {Kind: conversation.ToolThink},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
