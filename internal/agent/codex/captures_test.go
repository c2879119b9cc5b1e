package codex_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// exception is a reason for a difference between the two sides of a capture that was made without
// the bridge and has no notebook. The package documentation lists all of them.
type exception string

const (
	lost    exception = "text in progress when the turn was interrupted is only in the stream"
	untimed exception = "a call that never ended has the time of the model's call in the transcript"
	retried exception = "requests that were sent again are in the stream alone"
	refused exception = "a call that was cancelled counts as interrupted in the transcript"
	unheard exception = "answers to questions are only in the transcript"
)

// exceptions are the captures in which the two sides differ.
var exceptions = map[string][]exception{
	"asks-its-user":         {unheard, untimed},
	"interrupted-in-a-tool": {untimed},
	"is-cancelled":          {refused, untimed},
	"is-denied":             {untimed},
	"killed-in-a-tool":      {untimed},
	"killed-in-text":        {lost},
	"model-breaks-off":      {retried},
	"model-fails":           {retried},
	"plain-interrupt-text":  {lost},
}

// TestCaptures reads the output of the real program: its stream and its transcript must give the
// same blocks. Each capture has a golden file, blocks; rewrite it with go test -run Captures
// -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/captures/*", func(t *testing.T, dir string) {
		streamed, ends := stream(t, dir)
		parsed := capture.Parse(t, codex.New(), capture.Transcript(t, dir))
		capture.Golden(t, filepath.Join(dir, "blocks"), append(capture.Lines(parsed), ends...))
		capture.Same(t, parsed, streamed, exceptions[filepath.Base(dir)], except)
	})
}

// stream folds the stream of a capture and returns how its turns ended.
func stream(t *testing.T, dir string) (conversation.Conversation, []string) {
	t.Helper()
	return capture.Fold(t, codex.New(), capture.Frames(t, filepath.Join(dir, "stdout.jsonl")))
}

// except applies an exception.
func except(e exception, parsed, streamed conversation.Conversation) (p, s conversation.Conversation) {
	switch e {
	case lost:
		return parsed, capture.Without(streamed, func(_ int, b conversation.Block) bool {
			return b.Status == conversation.Aborted && b.Type == conversation.AssistantText
		})
	case retried:
		return parsed, capture.Without(streamed, func(_ int, b conversation.Block) bool { return b.Subtype == "retry" })
	case refused:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for _, thread := range c.Threads {
				for i := range thread.Blocks {
					if b := &thread.Blocks[i]; b.Type == conversation.ToolUse {
						b.Status, b.Input = conversation.Aborted, nil
					}
				}
			}
		}
		return parsed, capture.Without(streamed, func(_ int, b conversation.Block) bool { return b.Type == conversation.ToolResult })
	case unheard:
		return capture.Without(parsed, func(_ int, b conversation.Block) bool {
			return b.Type == conversation.ToolResult && strings.Contains(string(b.Output), "answers")
		}), streamed
	case untimed:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for _, thread := range c.Threads {
				for i := range thread.Blocks {
					thread.Blocks[i].CreatedAt = time.Time{}
				}
			}
		}
		return parsed, streamed
	}
	panic("unknown exception " + string(e))
}
