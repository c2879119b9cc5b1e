package gemini_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// TestCaptures reads the output of the real program: with the bridge (bridge-*), over ACP without
// it (acp-*), and as stream-json (native-*). Each capture has two golden files, blocks for its
// transcript and streamed for its stream; rewrite them with go test -run Captures -update. The
// bridge's streams give the blocks of their transcripts. The package documentation lists the
// content that the other streams have in common with their transcripts.
func TestCaptures(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/captures/*", func(t *testing.T, dir string) {
		name := filepath.Base(dir)
		parsed := capture.Parse(t, gemini.New(), capture.Transcript(t, dir))
		streamed, ends := capture.FoldStreams(t, gemini.New(), dir)
		capture.Golden(t, filepath.Join(dir, "blocks"), capture.Lines(parsed))
		capture.Golden(t, filepath.Join(dir, "streamed"), append(capture.Lines(streamed), ends...))
		if strings.HasPrefix(name, "bridge-") {
			parsed, streamed = withoutAborted(parsed, name), withoutAborted(streamed, name)
			require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
			return
		}
		if strings.HasSuffix(name, "load") || strings.HasSuffix(name, "resume") {
			return // several streams of one session, which repeat its past
		}
		require.Empty(t, cmp.Diff(sharedContent(parsed), sharedContent(streamed)), "- parsed, + streamed")
	})
}

// withoutAborted returns a conversation without the text that was streaming when the process was
// killed.
func withoutAborted(c conversation.Conversation, name string) conversation.Conversation {
	if !strings.Contains(name, "killed") {
		return c
	}
	for i, thread := range c.Threads {
		c.Threads[i].Blocks = slices.DeleteFunc(thread.Blocks, func(b conversation.Block) bool {
			return b.Type == conversation.AssistantText && b.Status == conversation.Aborted
		})
	}
	return c
}

// sharedContent returns the content that a stream without the bridge has in common with its
// transcript: the answers, and the calls with their results.
func sharedContent(c conversation.Conversation) []string {
	var out []string
	for _, b := range c.Threads[0].Blocks {
		switch {
		case b.Status == conversation.Aborted:
		case b.Type == conversation.AssistantText:
			out = append(out, b.Content)
		case b.Type == conversation.ToolUse, b.Type == conversation.Subagent:
			out = append(out, fmt.Sprintf("%s %s %s", b.ID, b.Name, b.Status))
		case b.Type == conversation.ToolResult:
			out = append(out, fmt.Sprintf("%s %s %t", b.ID, b.ToolUseID, b.IsError))
		}
	}
	return out
}
