package demo

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of the demo agent.
var tools = agent.Tools{
	"shell": {Kind: conversation.ToolExecute, Subject: []string{"command"}},
	"look":  {Kind: conversation.ToolRead, Path: []string{"file"}},
	"write": {Kind: conversation.ToolEdit, Path: []string{"file"}, New: "text"},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
