package demoagent

import (
	"encoding/json"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// callTool calls one of overwinter's tools as any agent does: over MCP, from a server that it
// starts.
func (t *turn) callTool(name, input string) (answer, error) {
	text, failed := t.exchange(name, input)
	t.answer = text
	if t.ctx.Err() != nil {
		return answer{output: interruptedOutput}, errInterrupted
	}
	return answer{output: text, failed: failed}, nil
}

func (t *turn) exchange(name, input string) (text string, failed bool) {
	if len(t.tools) == 0 {
		return "overwinter offers no tools here", true
	}
	cmd := exec.CommandContext(t.ctx, t.tools[0], t.tools[1:]...)
	cmd.Stderr = t.Stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1"}, nil).Connect(t.ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return "cannot reach overwinter's tools: " + err.Error(), true
	}
	defer session.Close() // the answer has already been read
	result, err := session.CallTool(t.ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(input)})
	if err != nil {
		return err.Error(), true
	}
	var parts []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, text.Text)
		}
	}
	return strings.Join(parts, "\n"), result.IsError
}
