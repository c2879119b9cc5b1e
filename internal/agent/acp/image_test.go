package acp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// TestBridgeStoresImagesOfAgent checks that the notebook names images without
// their bytes, and that the stream contains the bytes.
func TestBridgeStoresImagesOfAgent(t *testing.T) {
	t.Parallel()
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	image, ok := conversation.DecodeImage(pixel)
	require.True(t, ok)
	update := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"see"}},{"type":"content","content":{"type":"image","mimeType":"image/png","data":"` + pixel + `"}}]}}}`
	tr, err := acp.New().NewTranslator(agent.RunContext{RunID: "run_1"}, nil)
	require.NoError(t, err)
	var images []conversation.ImageData
	var f conversation.Folder
	for i, line := range []string{
		update, // of an earlier turn
		`{"overwinter":{"type":"run","runId":"run_1"}}`,
		update,
		`{"overwinter":{"type":"block","data":{"id":"c/result","type":"tool_result","status":"success","createdAt":"2026-01-01T00:00:00Z","toolUseId":"c","output":"see","images":[{"id":"` + image.ID + `","mediaType":"image/png","bytes":70}]}}}`,
	} {
		out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		images = append(images, out.Images...)
		for _, e := range out.Events {
			f.Add(e)
		}
	}
	require.Equal(t, []conversation.ImageData{image}, images)
	blocks := f.Conversation().Threads[0].Blocks
	require.Len(t, blocks, 1)
	require.Equal(t, []conversation.Image{image.Image}, blocks[0].Images)
}
