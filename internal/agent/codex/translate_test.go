package codex_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// outcome is the result of the lines of a run.
type outcome struct {
	state  int // the longest
	end    *agent.TurnEnd
	blocks []conversation.Block // of the main conversation, after a final Cut
}

// ran translates a run whose main turn is u of thread t.
func ran(t *testing.T, lines ...string) outcome {
	t.Helper()
	tr, err := codex.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	var out outcome
	var f conversation.Folder
	add := func(events []conversation.Event) {
		for _, e := range events {
			f.Add(e)
		}
	}
	for i, line := range append([]string{`{"overwinter":{"type":"run","runId":"run_1","id":"t"}}`, turn("turn/started", "t", "u", "")}, lines...) {
		got, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		add(got.Events)
		if got.End != nil {
			out.end = got.End
		}
		if i%16 == 0 || i == len(lines)+1 {
			state, err := tr.State()
			require.NoError(t, err)
			out.state = max(out.state, len(state))
		}
	}
	add(tr.Cut(capture.Begun))
	out.blocks = f.Conversation().Threads[0].Blocks
	return out
}

func turn(method, thread, id, rest string) string {
	return fmt.Sprintf(`{"method":%q,"params":{"threadId":%q,"turn":{"id":%q%s}}}`, method, thread, id, rest)
}

func item(method, item string) string {
	return fmt.Sprintf(`{"method":%q,"params":{"threadId":"t","turnId":"u","item":{%s}}}`, method, item)
}

func used(thread, id string, total, last int) string {
	return fmt.Sprintf(`{"method":"thread/tokenUsage/updated","params":{"threadId":%q,"turnId":%q,"tokenUsage":{"total":{"inputTokens":%d,"outputTokens":%d},"last":{"inputTokens":%d,"outputTokens":%d}}}}`,
		thread, id, total, total/2, last, last/2)
}

const maxState = 64 << 10

func TestManyCallsAtOnceLeaveStateSmall(t *testing.T) {
	t.Parallel()
	command := strings.Repeat("x", 7<<10)
	var lines []string
	for i := range 60 {
		lines = append(lines, item("item/started", fmt.Sprintf(`"type":"commandExecution","id":"call_%d","command":%q,"status":"inProgress"`, i, command)))
	}
	got := ran(t, lines...)
	require.Less(t, got.state, maxState)
	require.Len(t, got.blocks, 60)
	for _, b := range got.blocks {
		require.Equal(t, conversation.Aborted, b.Status)
		require.Contains(t, string(b.Input), command, "displayed text stays")
	}
}

func TestManyTextsAtOnceLeaveStateSmall(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("x", 7<<10)
	var lines []string
	for i := range 60 {
		lines = append(lines, item("item/started", fmt.Sprintf(`"type":"agentMessage","id":"msg_%d","text":""`, i)),
			fmt.Sprintf(`{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"msg_%d","delta":%q}}`, i, words))
	}
	got := ran(t, lines...)
	require.Less(t, got.state, maxState)
	require.Len(t, got.blocks, 60)
	for _, b := range got.blocks {
		require.Equal(t, words, b.Content, "displayed text stays")
	}
}

func TestUsageOfManySubagentsIsCounted(t *testing.T) {
	t.Parallel()
	var lines []string
	for round := range 2 {
		for i := range 1000 {
			thread := fmt.Sprintf("0193a5f0-7c7e-7b3e-8f0a-%012d", i)
			lines = append(lines, turn("turn/started", thread, "v", ""), used(thread, "v", 100+20*round, 100-80*round), turn("turn/completed", thread, "v", `,"status":"completed"`))
		}
	}
	lines = append(lines, used("t", "u", 1000, 10), used("t", "u", 1030, 30))
	got := ran(t, append(lines, turn("turn/completed", "t", "u", `,"status":"completed"`))...)
	require.Less(t, got.state, maxState)
	require.Equal(t, usage.Usage{InputTokens: 120*1000 + 40, OutputTokens: 60*1000 + 20, CostUnknown: true}, got.end.Usage)
}

func TestTurnOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines   []string
		outcome session.Outcome
		reason  string
	}{
		"completed":             {[]string{turn("turn/completed", "t", "u", `,"status":"completed"`)}, session.OutcomeCompleted, ""},
		"interrupted":           {[]string{turn("turn/completed", "t", "u", `,"status":"interrupted"`)}, session.OutcomeCancelled, session.ReasonAborted},
		"failed":                {[]string{turn("turn/completed", "t", "u", `,"status":"failed","error":{"message":"no quota"}`)}, session.OutcomeFailed, "no quota"},
		"of another turn":       {[]string{turn("turn/completed", "t", "v", `,"status":"completed"`)}, "", ""},
		"of another thread":     {[]string{turn("turn/completed", "s", "u", `,"status":"completed"`)}, "", ""},
		"a subagent is running": {[]string{turn("turn/started", "s", "v", ""), turn("turn/completed", "t", "u", `,"status":"completed"`)}, "", ""},
		"the subagent is done": {
			[]string{turn("turn/started", "s", "v", ""), turn("turn/completed", "t", "u", `,"status":"completed"`), turn("turn/completed", "s", "v", `,"status":"failed"`)},
			session.OutcomeCompleted, "",
		},
		"subagents were aborted": {
			[]string{`{"overwinter":{"type":"aborted","runId":"run_1"}}`, turn("turn/completed", "t", "u", `,"status":"completed"`)},
			session.OutcomeCancelled, session.ReasonAborted,
		},
		"the bridge could not deliver it": {[]string{`{"overwinter":{"type":"failed","runId":"run_1","message":"no thread"}}`}, session.OutcomeFailed, "no thread"},
		"a note of another run":           {[]string{`{"overwinter":{"type":"failed","runId":"run_2","message":"no thread"}}`}, "", ""},
		"the bridge gave up": {
			[]string{`{"overwinter":{"type":"deadline","runId":"run_1","message":"too long","data":{"threadId":"t","turnId":"u","atMs":2}}}`, turn("turn/completed", "t", "u", `,"status":"interrupted"`)},
			session.OutcomeFailed, "too long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ran(t, c.lines...)
			if c.outcome == "" {
				require.Nil(t, got.end)
				return
			}
			require.NotNil(t, got.end)
			require.Equal(t, c.outcome, got.end.Outcome)
			require.Equal(t, c.reason, got.end.Reason)
		})
	}
}

// onePixel is a PNG image.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestImagesInResultsAreTakenOut(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"an MCP server": `"type":"mcpToolCall","id":"c","server":"s","tool":"shot","status":"completed","result":{"content":[{"type":"text","text":"see"},{"type":"image","data":"` + onePixel + `","mimeType":"image/png"}]}`,
		"another tool":  `"type":"dynamicToolCall","id":"c","tool":"shot","status":"completed","contentItems":[{"type":"inputImage","imageUrl":"data:image/png;base64,` + onePixel + `"}]`,
		"what is drawn": `"type":"imageGeneration","id":"c","status":"completed","revisedPrompt":"a dot","result":"` + onePixel + `"`,
	} {
		tr, err := codex.New().NewTranslator(testRun, nil)
		require.NoError(t, err)
		var images []conversation.ImageData
		var f conversation.Folder
		for i, line := range []string{`{"overwinter":{"type":"run","runId":"run_1","id":"t"}}`, turn("turn/started", "t", "u", ""), item("item/completed", line)} {
			got, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
			require.NoError(t, err)
			images = append(images, got.Images...)
			for _, e := range got.Events {
				f.Add(e)
			}
		}
		require.Len(t, images, 1, name)
		require.Equal(t, "image/png", images[0].MediaType)
		require.Len(t, images[0].Data, 70)
		blocks := f.Conversation().Threads[0].Blocks
		require.Equal(t, []conversation.Image{images[0].Image}, blocks[len(blocks)-1].Images, name)
		require.NotContains(t, string(blocks[len(blocks)-1].Output), onePixel[:20])
	}
}
