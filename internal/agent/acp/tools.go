package acp

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of an ACP agent, which the protocol identifies by kind.
var tools = agent.Tools{
	"read":    {Kind: conversation.ToolRead, Subject: []string{"title", "file_path", "path"}, Path: []string{"file_path", "path", "abs_path"}, Line: "line"},
	"edit":    {Kind: conversation.ToolEdit, Subject: []string{"title"}, Path: []string{"file_path", "path", "abs_path"}, Old: "old_string", New: "new_string"},
	"delete":  {Kind: conversation.ToolEdit, Subject: []string{"title"}, Path: []string{"file_path", "path"}},
	"move":    {Kind: conversation.ToolEdit, Subject: []string{"title"}, Path: []string{"file_path", "path"}},
	"search":  {Kind: conversation.ToolSearch, Subject: []string{"title", "pattern", "query"}, Path: []string{"path"}},
	"execute": {Kind: conversation.ToolExecute, Subject: []string{"command", "title"}},
	"fetch":   {Kind: conversation.ToolFetch, Subject: []string{"url", "title"}},
	"think":   {Kind: conversation.ToolThink, Subject: []string{"title"}},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
