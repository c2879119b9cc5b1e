package opencode

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Viewer = Adapter{}

// tools classifies the tools of OpenCode.
var tools = agent.Tools{
	"bash":        {Kind: conversation.ToolExecute, Subject: []string{"command"}},
	"read":        {Kind: conversation.ToolRead, Path: []string{"filePath"}, Line: "offset"},
	"list":        {Kind: conversation.ToolRead, Path: []string{"path"}},
	"write":       {Kind: conversation.ToolEdit, Path: []string{"filePath"}, New: "content"},
	"edit":        {Kind: conversation.ToolEdit, Path: []string{"filePath"}, Old: "oldString", New: "newString"},
	"multiedit":   {Kind: conversation.ToolEdit, Path: []string{"filePath"}, Old: "oldString", New: "newString", Edits: "edits"},
	"patch":       {Kind: conversation.ToolEdit, Patch: "patchText"},
	"apply_patch": {Kind: conversation.ToolEdit, Patch: "patchText"},
	"glob":        {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"path"}},
	"grep":        {Kind: conversation.ToolSearch, Subject: []string{"pattern"}, Path: []string{"path"}},
	"websearch":   {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"codesearch":  {Kind: conversation.ToolSearch, Subject: []string{"query"}},
	"webfetch":    {Kind: conversation.ToolFetch, Subject: []string{"url"}},
	"todowrite":   {Kind: conversation.ToolThink},
	"todoread":    {Kind: conversation.ToolThink},
}

// Tool describes a tool call.
func (Adapter) Tool(name string, input json.RawMessage) conversation.Tool {
	return tools.View(name, input)
}
