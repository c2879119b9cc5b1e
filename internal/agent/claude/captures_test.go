package claude_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// exception is a reason for a difference between the two sides of a capture. The package
// documentation lists all of them.
type exception string

const (
	killed   exception = "text in progress when the process was killed is only in the stream"
	silent   exception = "the stream was made without --replay-user-messages and has no prompts"
	repeated exception = "a prompt that had no answer is read again, and has the time of that"
)

// exceptions are the captures in which the two sides differ.
var exceptions = map[string][]exception{
	"killed-in-text":                  {killed},
	"known-prompt-that-had-no-answer": {killed, repeated},
	"plain-compact":                   {silent},
	"plain-fail":                      {silent},
	"plain-hello":                     {silent},
	"plain-interrupt-text":            {silent},
	"plain-parallel":                  {silent},
	"plain-perm-allow":                {silent},
	"plain-perm-deny":                 {silent},
	"plain-resume":                    {silent},
	"plain-subagent":                  {silent},
	"plain-think":                     {silent},
	"plain-tool":                      {silent},
	"without-partial-messages":        {silent},
}

// TestCaptures reads the output of the real program: its stream and its transcript must give the
// same blocks. Each capture has a golden file, blocks; rewrite it with go test -run Captures
// -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/captures/*", func(t *testing.T, dir string) {
		streamed, ends := capture.FoldStreams(t, claude.New(), dir)
		parsed := capture.Parse(t, claude.New(), capture.Transcript(t, dir))
		capture.Golden(t, filepath.Join(dir, "blocks"), append(capture.Lines(parsed), ends...))
		forgetTimes(parsed, streamed)
		capture.Same(t, parsed, streamed, exceptions[filepath.Base(dir)], except)
	})
}

// except applies an exception.
func except(e exception, parsed, streamed conversation.Conversation) (p, s conversation.Conversation) {
	in := func(c conversation.Conversation, thread int, id string) bool {
		return thread < len(c.Threads) && slices.ContainsFunc(c.Threads[thread].Blocks, func(b conversation.Block) bool { return b.ID == id })
	}
	switch e {
	case killed:
		return parsed, capture.Without(streamed, func(thread int, b conversation.Block) bool {
			return b.Status == conversation.Aborted && !in(parsed, thread, b.ID)
		})
	case silent:
		return capture.Without(parsed, func(thread int, b conversation.Block) bool {
			return thread == 0 && b.Type == conversation.UserMessage && !in(streamed, thread, b.ID)
		}), streamed
	case repeated:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for i := range c.Threads[0].Blocks {
				if b := &c.Threads[0].Blocks[i]; b.Type == conversation.UserMessage {
					b.CreatedAt = time.Time{}
				}
			}
		}
		return parsed, streamed
	}
	panic("unknown exception " + string(e))
}

// forgetTimes removes the times of blocks whose line in the stream has no time.
func forgetTimes(cs ...conversation.Conversation) {
	for _, c := range cs {
		for _, t := range c.Threads {
			for i := range t.Blocks {
				switch t.Blocks[i].Subtype {
				case "retry", "task", "compaction", "notice":
					t.Blocks[i].CreatedAt = time.Time{}
				}
			}
		}
	}
}
