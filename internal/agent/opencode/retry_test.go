package opencode_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// read translates the lines of a run.
func read(t *testing.T, runID, lines string) conversation.Conversation {
	t.Helper()
	tr, err := opencode.New().NewTranslator(agent.RunContext{RunID: runID}, nil)
	require.NoError(t, err)
	var f conversation.Folder
	no := int64(0)
	for line := range strings.Lines(lines) {
		got, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.UnixMilli(1795415420000), Data: []byte(strings.TrimSpace(line))})
		require.NoError(t, err)
		no++
		for _, e := range got.Events {
			f.Add(e)
		}
	}
	return f.Conversation()
}

// TestTextOfFailedAttemptIsDropped has an attempt with output followed by attempts without. The
// agent stores the text of an attempt when the attempt ends or is aborted, and drops it when the
// next attempt begins.
func TestTextOfFailedAttemptIsDropped(t *testing.T) {
	t.Parallel()
	const begin = `{"overwinter":{"type":"run","runId":"run_1","id":"ses_1","data":{"before":"msg_1"}}}
{"id":"evt_1","type":"message.updated","properties":{"sessionID":"ses_1","info":{"id":"msg_2","parentID":"msg_1","role":"assistant","sessionID":"ses_1","time":{"created":1795415413392}}}}
{"id":"evt_2","type":"message.part.updated","properties":{"part":{"id":"prt_1","messageID":"msg_2","sessionID":"ses_1","type":"step-start"}}}
{"id":"evt_3","type":"message.part.updated","properties":{"part":{"id":"prt_2","messageID":"msg_2","sessionID":"ses_1","type":"text","text":"","time":{"start":1795415414144}}}}
{"id":"evt_4","type":"message.part.delta","properties":{"sessionID":"ses_1","messageID":"msg_2","partID":"prt_2","field":"text","delta":"word "}}
{"id":"evt_5","type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"retry","attempt":1,"message":"Connection reset by server"}}}
`
	const end = `{"overwinter":{"type":"deadline","runId":"run_1","id":"msg_2","message":"the model does not answer"}}
`
	const over = `{"id":"evt_9","type":"message.updated","properties":{"sessionID":"ses_1","info":{"id":"msg_2","parentID":"msg_1","role":"assistant","sessionID":"ses_1","time":{"created":1795415413392,"completed":1795415416000},"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}}}}
{"overwinter":{"type":"end","runId":"run_1","data":{"outcome":""}}}
`
	for name, c := range map[string]struct {
		lines string // between the first failure and the end
		text  string // as the agent stores it
		want  []conversation.BlockType
	}{
		"the next attempt writes nothing": {
			`{"id":"evt_6","type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}
{"id":"evt_7","type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"retry","attempt":2,"message":"Cannot connect to API"}}}
` + end,
			`"text":"","time":{"start":1795415414144}`,
			[]conversation.BlockType{conversation.System},
		},
		"there is no next attempt": {
			end + `{"id":"evt_8","type":"message.part.updated","properties":{"part":{"id":"prt_2","messageID":"msg_2","sessionID":"ses_1","type":"text","text":"word ","time":{"start":1795415414144,"end":1795415415000}}}}
`,
			`"text":"word ","time":{"start":1795415414144,"end":1795415415000}`,
			[]conversation.BlockType{conversation.AssistantText, conversation.System},
		},
		"another session is busy": {
			`{"id":"evt_6","type":"session.status","properties":{"sessionID":"ses_2","status":{"type":"busy"}}}
` + end + `{"id":"evt_8","type":"message.part.updated","properties":{"part":{"id":"prt_2","messageID":"msg_2","sessionID":"ses_1","type":"text","text":"word ","time":{"start":1795415414144,"end":1795415415000}}}}
`,
			`"text":"word ","time":{"start":1795415414144,"end":1795415415000}`,
			[]conversation.BlockType{conversation.AssistantText, conversation.System},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streamed := read(t, "run_1", begin+c.lines+over)
			var kinds []conversation.BlockType
			for _, b := range streamed.Threads[0].Blocks {
				kinds = append(kinds, b.Type)
			}
			require.Equal(t, c.want, kinds)
			export := `{"overwinter":true,"info":{"id":"ses_1"},"messages":[{"info":{"id":"msg_2","parentID":"msg_1","role":"assistant","sessionID":"ses_1",` +
				`"time":{"created":1795415413392,"completed":1795415416000},"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}},"parts":[` +
				`{"id":"prt_1","messageID":"msg_2","sessionID":"ses_1","type":"step-start"},` +
				`{"id":"prt_2","messageID":"msg_2","sessionID":"ses_1","type":"text",` + c.text + `}]}]}`
			parsed, err := opencode.New().Parse([]transcript.File{
				{Path: "ses_1.json", Data: []byte(export)},
				{Path: "failures.json", Data: []byte(`{"failures":[{"messageID":"msg_2","message":"the model does not answer"}]}`)},
			})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
		})
	}
}
