package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
)

// version is the version of the tools, which clients may show.
const version = "1"

// Serve offers the tools on stdin and stdout until stdin is closed, and passes calls to the runner
// at the socket.
func Serve(ctx context.Context, socket string, stdin io.Reader, stdout io.Writer) error {
	s := mcp.NewServer(&mcp.Implementation{Name: agenttool.Server, Title: "overwinter", Version: version}, nil)
	for _, t := range agenttool.All() {
		s.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				answer := call(ctx, socket, agenttool.Call{Tool: r.Params.Name, Input: r.Params.Arguments})
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer.Text}}, IsError: answer.Failed}, nil
			})
	}
	err := s.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(stdin), Writer: nopCloser{stdout}})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return err
	}
	return nil
}

// nopCloser keeps stdout open.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// call passes a call to the runner and returns the answer.
func call(ctx context.Context, socket string, c agenttool.Call) agenttool.Answer {
	if len(c.Input) == 0 {
		c.Input = json.RawMessage("{}")
	}
	if c.Tool == agenttool.SaveScreenshot {
		image, err := screenshot(c.Input)
		if err != nil {
			return agenttool.Refuse("The file cannot be read: %v.", err)
		}
		c.Image = image
	}
	data, err := json.Marshal(c)
	if err != nil {
		return agenttool.Refuse("The call cannot be encoded: %v.", err)
	}
	answer, err := exchange(ctx, socket, data)
	if err != nil {
		return agenttool.Refuse("overwinter cannot be reached: %v.", err)
	}
	return answer
}
