package agenttest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/conform"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	maxState = 64 << 10 // bounds a translator's state, which is written with every commit
	allCuts  = 8 << 10  // a file up to this size is truncated at every byte, a longer one at this many places
	cutBytes = 24 << 20 // but at most this many bytes are parsed, for all files together
)

// check checks everything recorded so far against the guarantees. A shared session continues; its
// transcripts are checked after the last scenario.
func (b *bench) check(t *testing.T) {
	t.Helper()
	for _, r := range b.runs[b.checked:] {
		requireClosed(t, Fold(t, r.events))
		requireLifecycles(t, r.events)
		b.checkRestarts(t, r)
		b.checkUnknown(t, r)
	}
	b.checked = len(b.runs)
	if b.owner == nil {
		b.checkTranscripts(t)
	}
}

// checkTranscripts compares the streamed blocks with the transcripts. It ends the process first, so
// that the transcripts are complete.
func (b *bench) checkTranscripts(t *testing.T) {
	t.Helper()
	b.close(t)
	files := b.transcripts(t)
	require.NotEmpty(t, files, "the agent left no transcript where Launch says")
	streamed := b.folded(t)
	parsed := b.parsed(t, files)
	if b.killed && b.KillLosesText {
		streamed, parsed = withoutLostText(streamed), withoutLostText(parsed)
	}
	if b.PromptsUnsigned {
		streamed = unsigned(streamed)
	}
	streamed, parsed = b.withoutTimes(streamed), b.withoutTimes(parsed)
	require.Empty(t, cmp.Diff(parsed, streamed), "- parsed from the transcript, + folded from the stream")
	b.checkCuts(t, files)
}

// folded returns the conversation that a reader of the log gets.
func (b *bench) folded(t *testing.T) conversation.Conversation {
	t.Helper()
	var events []conversation.Event
	for _, r := range b.runs {
		events = append(events, r.events...)
	}
	return Fold(t, b.viewed(events))
}

// viewed adds the view of each tool call to its events, as a worker does.
func (b *bench) viewed(events []conversation.Event) []conversation.Event {
	viewer, ok := b.Adapter.(agent.Viewer)
	if !ok {
		return events
	}
	out := make([]conversation.Event, len(events))
	for i, e := range events {
		out[i] = conversation.WithTool(e, viewer.Tool)
	}
	return out
}

func (b *bench) parsed(t *testing.T, files []transcript.File) conversation.Conversation {
	t.Helper()
	c, err := b.Adapter.Parse(files)
	require.NoError(t, err)
	if viewer, ok := b.Adapter.(agent.Viewer); ok {
		conversation.WithTools(c, viewer.Tool)
	}
	return throughJSON(t, c)
}

// Fold folds events after encoding and decoding them as JSON, as they come out of the log. Events
// and blocks must match the OpenAPI document.
func Fold(t *testing.T, events []conversation.Event) conversation.Conversation {
	t.Helper()
	var f conversation.Folder
	for _, e := range events {
		if conform.HasDocument() {
			require.NoError(t, conform.AgentEvent(e))
		}
		require.NoError(t, f.Apply(e.Type, e.ConversationID, encode(e.Data)))
	}
	return throughJSON(t, f.Conversation())
}

func throughJSON(t *testing.T, c conversation.Conversation) conversation.Conversation {
	t.Helper()
	var back conversation.Conversation
	require.NoError(t, json.Unmarshal(encode(c), &back))
	for _, thread := range c.Threads {
		for _, block := range thread.Blocks {
			if conform.HasDocument() {
				require.NoError(t, conform.Block(block))
			}
		}
	}
	return back
}

// withoutLostText removes text blocks that were aborted.
func withoutLostText(c conversation.Conversation) conversation.Conversation {
	for i, thread := range c.Threads {
		c.Threads[i].Blocks = slices.DeleteFunc(thread.Blocks, func(block conversation.Block) bool {
			text := block.Type == conversation.AssistantText || block.Type == conversation.Thinking
			return text && block.Status == conversation.Aborted
		})
	}
	return c
}

// unsigned removes the authors of blocks.
func unsigned(c conversation.Conversation) conversation.Conversation {
	for _, thread := range c.Threads {
		for i := range thread.Blocks {
			thread.Blocks[i].PromptID, thread.Blocks[i].Author = "", ""
		}
	}
	return c
}

// withoutTimes removes the times of blocks that have none in the stream.
func (b *bench) withoutTimes(c conversation.Conversation) conversation.Conversation {
	for _, thread := range c.Threads {
		for i := range thread.Blocks {
			if block := &thread.Blocks[i]; block.Type == conversation.System && slices.Contains(b.Untimed, block.Subtype) {
				block.CreatedAt = time.Time{}
			}
		}
	}
	return c
}

func requireClosed(t *testing.T, c conversation.Conversation) {
	t.Helper()
	for _, thread := range c.Threads {
		for _, block := range thread.Blocks {
			require.False(t, block.Status.Open(), "block %s of %s is still %s", block.ID, thread.ID, block.Status)
			require.False(t, block.CreatedAt.IsZero(), "block %s of %s has no time", block.ID, thread.ID)
		}
	}
}

// requireLifecycles checks that every block of a run starts once, then changes, then completes once
// or is removed, and that its deltas add up to its text.
func requireLifecycles(t *testing.T, events []conversation.Event) {
	t.Helper()
	type life struct {
		conversation string
		text         string
		ended        bool
	}
	blocks := map[string]*life{}
	open := func(e conversation.Event, id string) *life {
		l, ok := blocks[id]
		require.True(t, ok, "%s of block %s, which has not started", e.Type, id)
		require.False(t, l.ended, "%s of block %s, which has ended", e.Type, id)
		require.Equal(t, l.conversation, e.ConversationID, "%s of block %s", e.Type, id)
		return l
	}
	for _, e := range events {
		require.False(t, e.At.IsZero(), "%s has no time", e.Type)
		switch d := e.Data.(type) {
		case conversation.BlockStart:
			require.NotContains(t, blocks, d.Block.ID, "a block started twice")
			require.True(t, d.Block.Status.Open(), "block %s starts as %s", d.Block.ID, d.Block.Status)
			blocks[d.Block.ID] = &life{conversation: e.ConversationID}
		case conversation.TextDelta:
			open(e, d.BlockID).text += d.Delta
		case conversation.BlockUpdate:
			open(e, d.BlockID)
		case conversation.BlockRemoved:
			open(e, d.BlockID).ended = true
		case conversation.BlockComplete:
			l := open(e, d.Block.ID)
			l.ended = true
			require.False(t, d.Block.Status.Open(), "block %s completes as %s", d.Block.ID, d.Block.Status)
			if l.text != "" {
				require.Equal(t, l.text, d.Block.Content, "deltas of block %s", d.Block.ID)
			}
		}
	}
	for id, l := range blocks {
		require.True(t, l.ended, "block %s never completes", id)
	}
}

// checkRestarts translates the frames again, with a new translator before every frame and then with
// a single restart before each frame.
func (b *bench) checkRestarts(t *testing.T, r *run) {
	t.Helper()
	whole := b.translate(t, r, func(int) bool { return false })
	require.Equal(t, r.end, whole.end)
	every := b.translate(t, r, func(int) bool { return true })
	require.Empty(t, cmp.Diff(printEvents(whole.events), printEvents(every.events)), "a new translator before every frame")
	require.Equal(t, whole.end, every.end)
	stride := max(1, len(r.frames)/200) // quadratic, so long runs are sampled
	for k := 0; k < len(r.frames); k += stride {
		once := b.translate(t, r, func(i int) bool { return i == k })
		require.Empty(t, cmp.Diff(printEvents(whole.events), printEvents(once.events)), "a new translator before frame %d", k)
		require.Equal(t, whole.end, once.end)
	}
}

// checkUnknown translates the frames with unknown ones in between: the known ones must be
// translated as before.
func (b *bench) checkUnknown(t *testing.T, r *run) {
	t.Helper()
	strange := append([]string{
		``, `   `, `{`, `null`, `[]`, `42`, `"text"`, `{"type":"never heard of"}`, `{"type":42}`, "\x00\xff\xfe", strings.Repeat("x", 100_000),
	}, b.Unknown...)
	mixed := &run{context: r.context}
	add := func(f agent.Frame) {
		f.No = int64(len(mixed.frames))
		mixed.frames = append(mixed.frames, f)
	}
	mixed.expected = map[int][]agent.Steered{}
	for i, f := range r.frames {
		mixed.expected[len(mixed.frames)] = r.expected[i]
		add(agent.Frame{Stream: agent.Stdout, At: f.At, Data: []byte(strange[i%len(strange)])})
		add(agent.Frame{Stream: agent.Stderr, At: f.At, Data: []byte("noise")})
		add(agent.Frame{Stream: "a stream of the future", At: f.At, Data: []byte("noise")})
		add(f)
	}
	got := b.translate(t, mixed, func(int) bool { return false })
	require.Equal(t, r.end, got.end, "strange frames changed the end of the turn")
	require.Empty(t, cmp.Diff(withoutSystem(Fold(t, r.events)), withoutSystem(Fold(t, got.events))), "strange frames changed blocks")
	for _, e := range got.events {
		require.Less(t, len(encode(e.Data)), maxState, "a strange frame must be kept bounded")
	}
}

// checkCuts parses the transcripts with one of them truncated.
func (b *bench) checkCuts(t *testing.T, files []transcript.File) {
	t.Helper()
	total := 0
	for _, f := range files {
		total += len(f.Data)
	}
	for i, f := range files {
		stride := max(1, len(f.Data)/allCuts, total*total/cutBytes)
		for n := 0; n < len(f.Data); n += stride {
			cut := append([]transcript.File(nil), files...)
			cut[i].Data = bytes.Clone(f.Data[:n])
			c, err := b.Adapter.Parse(cut)
			require.NoError(t, err, "%s cut at byte %d", f.Path, n)
			requireClosed(t, c)
		}
	}
}

// translation is the result of translating a run again.
type translation struct {
	events []conversation.Event
	end    *agent.TurnEnd
}

// translate translates all frames of a run, with a new translator before each frame that restart
// selects.
func (b *bench) translate(t *testing.T, r *run, restart func(frame int) bool) translation {
	t.Helper()
	tr, err := b.Adapter.NewTranslator(r.context, nil)
	require.NoError(t, err)
	var out translation
	for i, f := range r.frames {
		if restart(i) {
			state, err := tr.State()
			require.NoError(t, err)
			require.Less(t, len(state), maxState, "the translator's state is too large")
			tr, err = b.Adapter.NewTranslator(r.context, state)
			require.NoError(t, err)
			for n, given := range r.expected { // a worker that takes over the run passes them again
				for _, s := range given {
					if n < i {
						tr.(agent.Expecter).Expect(s)
					}
				}
			}
		}
		if restart(i + 1) { // a translator may keep its encoded state; the frame must then change it
			_, err := tr.State()
			require.NoError(t, err)
		}
		for _, s := range r.expected[i] {
			tr.(agent.Expecter).Expect(s)
		}
		got, err := tr.Translate(f)
		require.NoError(t, err, "frame %d: %s", i, f.Data)
		out.events = append(out.events, got.Events...)
		if got.End != nil {
			require.Nil(t, out.end, "a turn ended twice")
			out.end = got.End
		}
	}
	return out
}

// printEvents prints events in the form of the log.
func printEvents(events []conversation.Event) []string {
	lines := make([]string, len(events))
	for i, e := range events {
		lines[i] = string(e.Type) + " " + e.ConversationID + " " + e.At.UTC().Format(time.RFC3339Nano) + " " + string(encode(e.Data))
	}
	return lines
}

func withoutSystem(c conversation.Conversation) conversation.Conversation {
	out := conversation.Conversation{}
	for _, thread := range c.Threads {
		kept := []conversation.Block{}
		for _, block := range thread.Blocks {
			if block.Type != conversation.System {
				kept = append(kept, block)
			}
		}
		out.Threads = append(out.Threads, conversation.Thread{ID: thread.ID, Blocks: kept})
	}
	return out
}
