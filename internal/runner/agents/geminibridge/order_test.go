package geminibridge

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// ordered is an order with a chat file, and a short form of its output.
type ordered struct {
	order
	t    *testing.T
	file *os.File
	out  []string
}

func setup(t *testing.T) *ordered {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "chat.jsonl"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	return &ordered{t: t, file: file, order: order{
		changes: newChatChanges(), chats: &tail{name: file.Name()}, open: map[string]bool{}, finished: map[string]struct{}{},
	}}
}

func (o *ordered) add(notes []stdio.Note) {
	for _, n := range notes {
		var r geminiformat.Record
		geminiformat.Decode(n.Data, &r)
		switch {
		case n.Type == geminiformat.NoteChat && len(r.ToolCalls) > 0:
			o.out = append(o.out, "calls "+r.ToolCalls[0].ID)
		case n.Type == geminiformat.NoteChat:
			o.out = append(o.out, "record "+geminiformat.Words(r.Content))
		default:
			o.out = append(o.out, fmt.Sprintf("%s %s", n.Type, n.Data))
		}
	}
}

// writes appends a line to the chat file, as the program does.
func (o *ordered) writes(line string) {
	_, err := o.file.WriteString(line + "\n")
	require.NoError(o.t, err)
}

// says streams an update, as the bridge receives it.
func (o *ordered) says(raw string) {
	var u geminiformat.Update
	require.NoError(o.t, json.Unmarshal([]byte(raw), &u))
	notes, _ := o.gained("nowhere")
	o.add(notes)
	o.add(o.before(u))
	o.out = append(o.out, u.Kind)
	o.add(o.printed(u))
}

const (
	chunkA     = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a "}}`
	chunkB     = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"b"}}`
	thoughtT   = `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"**T**\nt"}}`
	callBegins = `{"sessionUpdate":"tool_call","toolCallId":"c","status":"in_progress","title":"x"}`
	callEnds   = `{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","title":"x"}`

	answerAB   = `{"id":"1","type":"gemini","content":"a b","thoughts":[{"subject":"T","description":"t"}]}`
	recordCall = `{"id":"2","type":"gemini","content":"","toolCalls":[{"id":"c","name":"x","args":{},"status":"success","result":[]}]}`
	responseC  = `{"id":"3","type":"user","content":[{"functionResponse":{"id":"c","name":"x","response":{"output":"y"}}}]}`
	answerB    = `{"id":"4","type":"gemini","content":"b","thoughts":[]}`
)

// want is the expected output. No other order is correct.
var want = []string{
	"agent_thought_chunk", "agent_message_chunk", "agent_message_chunk", "record a b", "tool_call", "tool_call_update", "calls c",
	"agent_message_chunk", "record b",
}

func TestRecordsFollowTheirSubject(t *testing.T) {
	t.Parallel()
	updates := []string{thoughtT, chunkA, chunkB, callBegins, callEnds, chunkB}
	records := []string{answerAB, recordCall, responseC, answerB}
	for name, early := range map[string][]int{ // number of records present before each update
		"as they are written": {0, 0, 0, 1, 1, 3},
		"a little early":      {0, 1, 1, 1, 3, 3},
		"all of them":         {4, 4, 4, 4, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := setup(t)
			written := 0
			for i, u := range updates {
				for ; written < early[i]; written++ {
					o.writes(records[written])
				}
				o.says(u)
			}
			for ; written < len(records); written++ {
				o.writes(records[written])
			}
			notes, _ := o.gained("nowhere")
			o.add(notes)
			o.add(o.rest())
			require.Equal(t, want, o.out)
		})
	}
}

func TestUnrecordedTextIsKept(t *testing.T) {
	t.Parallel()
	o := setup(t)
	o.says(thoughtT)
	o.says(chunkA)
	text, thoughts := o.unwritten()
	require.Equal(t, "a", text)
	require.Equal(t, []string{"**T**\nt"}, thoughts)
	o.begin()
	text, thoughts = o.unwritten()
	require.Empty(t, text)
	require.Empty(t, thoughts)
}

func TestRepeatedRecordsAreIgnored(t *testing.T) {
	t.Parallel()
	n := newChatChanges()
	require.Len(t, n.read("", []byte(answerAB)), 1)
	require.Empty(t, n.read("", []byte(answerAB)))
	require.Len(t, n.read("", []byte(recordCall)), 1)
	require.Empty(t, n.read("", []byte(responseC)), "the call has it")
	require.Empty(t, n.read("", []byte(`{"$set":{"lastUpdated":"x"}}`)))
	require.Empty(t, n.read("", []byte(`{"$set":{"messages":[`+answerAB+`]}}`)), "nothing is forgotten")
	items := n.read("", []byte(`{"$set":{"messages":[{"id":"9","type":"user","content":"A summary."}]}}`))
	require.Len(t, items, 1)
	require.Equal(t, geminiformat.NoteHistory, items[0].note.Type)
	require.Len(t, n.read("", []byte(`{"id":"8","type":"user","content":[{"functionResponse":{"id":"d","name":"x","response":{"error":"no"}}}]}`)), 1)
}

func TestMemoryPutsCallsAfterTheirAnswers(t *testing.T) {
	t.Parallel()
	n := newChatChanges()
	var m geminiformat.Memory
	take := func(line string) {
		for _, i := range n.read("", []byte(line)) {
			m.Note(i.note)
		}
	}
	take(`{"id":"0","type":"user","content":[{"text":"go"}]}`)
	for _, line := range []string{answerAB, recordCall, responseC, answerB} {
		take(line)
	}
	var ids []string
	for _, have := range m.Messages {
		ids = append(ids, fmt.Sprintf("%s %d", have.ID, len(have.Calls)))
	}
	require.Equal(t, []string{"0 0", "1 1", "4 0"}, ids)
	require.Equal(t, 5, m.Frames(), "a prompt, a thought, two answers, a call")
	take(`{"$set":{"messages":[` + answerAB + `,{"id":"9","type":"user","content":"A summary."}]}}`)
	require.Len(t, m.Messages, 2, "the agent has replaced the rest by a summary")
}

func TestCommandsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"description = \"x\"\nprompt = \"a \\\"b\\\"\"\n": `a "b"`,
		"prompt = '''\none\ntwo'''\n":                     "one\ntwo",
		"prompt = \"\"\"three\"\"\"":                      "three",
		"prompt='four'":                                   "four",
	} {
		got, ok := commandPrompt(text)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	_, ok := commandPrompt("description = 'x'")
	require.False(t, ok)
}
