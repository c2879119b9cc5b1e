package conversation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// shapes are blocks as CONTRACT has them: each type with all its fields and no others.
var shapes = map[string]conversation.Block{
	`{"id":"1","type":"user_message","status":"complete","createdAt":"2026-01-02T03:04:05.678Z","content":"hi","promptId":"p","author":"ada"}`: {
		ID: "1", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at, Content: "hi", PromptID: "p", Author: "ada",
	},
	`{"id":"1","type":"user_message","status":"complete","createdAt":"2026-01-02T03:04:05.678Z","content":""}`: {
		ID: "1", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at,
	},
	`{"id":"2","type":"assistant_text","status":"streaming","createdAt":"2026-01-02T03:04:05.678Z","content":""}`: {
		ID: "2", Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: at,
	},
	`{"id":"3","type":"thinking","status":"aborted","createdAt":"2026-01-02T03:04:05.678Z","content":"hm"}`: {
		ID: "3", Type: conversation.Thinking, Status: conversation.Aborted, CreatedAt: at, Content: "hm",
	},
	`{"id":"4","type":"tool_use","status":"running","createdAt":"2026-01-02T03:04:05.678Z","name":"shell","input":{"command":"ls"},"toolUseId":"4"}`: {
		ID: "4", Type: conversation.ToolUse, Status: conversation.Running, CreatedAt: at,
		Name: "shell", Input: json.RawMessage(`{"command":"ls"}`), ToolUseID: "4",
	},
	`{"id":"5","type":"tool_result","status":"success","createdAt":"2026-01-02T03:04:05.678Z","toolUseId":"4","output":"a\nb","isError":false}`: {
		ID: "5", Type: conversation.ToolResult, Status: conversation.Success, CreatedAt: at,
		ToolUseID: "4", Output: json.RawMessage(`"a\nb"`),
	},
	`{"id":"6","type":"tool_result","status":"error","createdAt":"2026-01-02T03:04:05.678Z","toolUseId":"4","output":{"exitCode":1},"isError":true}`: {
		ID: "6", Type: conversation.ToolResult, Status: conversation.Failed, CreatedAt: at,
		ToolUseID: "4", Output: json.RawMessage(`{"exitCode":1}`), IsError: true,
	},
	`{"id":"7","type":"system","status":"complete","createdAt":"2026-01-02T03:04:05.678Z","subtype":"unparsed","message":""}`: {
		ID: "7", Type: conversation.System, Status: conversation.Complete, CreatedAt: at, Subtype: "unparsed",
	},
	`{"id":"8","type":"subagent","status":"pending","createdAt":"2026-01-02T03:04:05.678Z","subagentId":"s","name":"bob","input":{"prompt":"go"}}`: {
		ID: "8", Type: conversation.Subagent, Status: conversation.Pending, CreatedAt: at,
		SubagentID: "s", Name: "bob", Input: json.RawMessage(`{"prompt":"go"}`),
	},
	`{"id":"9","type":"hologram","status":"complete","createdAt":"2026-01-02T03:04:05.678Z","content":"of the future"}`: {
		ID: "9", Type: "hologram", Status: conversation.Complete, CreatedAt: at, Content: "of the future",
	},
}

func TestBlocksRoundTrip(t *testing.T) {
	t.Parallel()
	for want, b := range shapes {
		data, err := json.Marshal(b)
		require.NoError(t, err)
		require.JSONEq(t, want, string(data))
		var back conversation.Block
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, b, back)
	}
}

func TestBlockJSONHasOnlyFieldsOfItsType(t *testing.T) {
	t.Parallel()
	full := conversation.Block{
		ID: "1", Status: conversation.Complete, CreatedAt: at, Content: "c", PromptID: "p", Author: "a", Name: "n",
		Input: json.RawMessage(`1`), ToolUseID: "t", Output: json.RawMessage(`2`), IsError: true, Subtype: "s", Message: "m", SubagentID: "x",
	}
	for kind, want := range map[conversation.BlockType][]string{
		conversation.UserMessage:   {"content", "promptId", "author"},
		conversation.AssistantText: {"content"},
		conversation.Thinking:      {"content"},
		conversation.ToolUse:       {"name", "input", "toolUseId"},
		conversation.ToolResult:    {"toolUseId", "output", "isError"},
		conversation.System:        {"subtype", "message"},
		conversation.Subagent:      {"subagentId", "name", "input"},
	} {
		full.Type = kind
		data, err := json.Marshal(full)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(data, &fields))
		var names []string
		for name := range fields {
			names = append(names, name)
		}
		require.ElementsMatch(t, append([]string{"id", "type", "status", "createdAt"}, want...), names, kind)
	}
}

func TestMissingJSONIsNullAndTimesAreUTC(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("somewhere", 3600)
	data, err := json.Marshal(conversation.Block{ID: "1", Type: conversation.ToolResult, Status: conversation.Running, CreatedAt: at.In(zone), ToolUseID: "t"})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"1","type":"tool_result","status":"running","createdAt":"2026-01-02T03:04:05.678Z","toolUseId":"t","output":null,"isError":false}`, string(data))
	var back conversation.Block
	require.NoError(t, json.Unmarshal(data, &back))
	require.Nil(t, back.Output)
	require.Nil(t, back.Input)
}

func TestOpenStatuses(t *testing.T) {
	t.Parallel()
	for status, open := range map[conversation.BlockStatus]bool{
		conversation.Streaming: true, conversation.Pending: true, conversation.Running: true,
		conversation.Complete: false, conversation.Abandoned: false, conversation.Success: false,
		conversation.Failed: false, conversation.Aborted: false,
	} {
		require.Equal(t, open, status.Open(), status)
	}
}

func TestEventsHaveShapesOfContract(t *testing.T) {
	t.Parallel()
	for want, data := range map[string]any{
		`{"blockId":"a","delta":"x"}`:                    conversation.TextDelta{BlockID: "a", Delta: "x"},
		`{"blockId":"a","updates":{"status":"running"}}`: conversation.BlockUpdate{BlockID: "a", Updates: conversation.Updates{Status: conversation.Running}},
		`{"blockId":"a"}`:                                conversation.BlockRemoved{BlockID: "a"},
		`{"usage":{"inputTokens":1,"outputTokens":2},"costUsd":0.5,"model":"demo"}`: conversation.MetadataUpdate{Usage: conversation.Usage{InputTokens: 1, OutputTokens: 2}, CostUSD: new(0.5), Model: "demo"},
		`{"title":"x"}`:                          conversation.Title{Title: "x"},
		`{"code":"agent_crashed","message":"x"}`: conversation.Problem{Code: "agent_crashed", Message: "x"},
		`{"block":{"id":"","type":"thinking","status":"","createdAt":"2026-01-02T03:04:05.678Z","content":""}}`: conversation.BlockStart{Block: conversation.Block{Type: conversation.Thinking, CreatedAt: at}},
	} {
		got, err := json.Marshal(data)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
}

// TestDeltasAreEncodedAlike checks that the short way to encode a delta gives the bytes of the general
// encoder.
func TestDeltasAreEncodedAlike(t *testing.T) {
	t.Parallel()
	alike := func(d conversation.TextDelta) {
		type general conversation.TextDelta
		want, err := conversation.Encode(general(d))
		require.NoError(t, err)
		got, err := conversation.Encode(d)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		var decoded general
		require.NoError(t, json.Unmarshal(got, &decoded))
		short, err := conversation.DecodeTextDelta(got)
		require.NoError(t, err)
		require.Equal(t, conversation.TextDelta(decoded), short)
	}
	for c := range rune(0x180) {
		alike(conversation.TextDelta{BlockID: "msg_1", Delta: "a" + string(c) + "b"})
		alike(conversation.TextDelta{BlockID: string(c), Delta: "word "})
		alike(conversation.TextDelta{BlockID: "b", Delta: string([]byte{byte(c)})})
	}
	for _, text := range []string{"", "<b>&", "\u2028\u2029", "\xff", "語"} {
		alike(conversation.TextDelta{BlockID: "b", Delta: text})
	}
}

func TestDeltaOfAnyFormIsDecoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]conversation.TextDelta{
		`{"delta":"x","blockId":"b"}`:                 {BlockID: "b", Delta: "x"},
		`{"blockId":"b","delta":"x","more":"y"}`:      {BlockID: "b", Delta: "x"},
		`{"blockId":"b","delta":"x","delta":"y"}`:     {BlockID: "b", Delta: "y"},
		`{"blockId":"b","delta":"x\",\"delta\":\"y"}`: {BlockID: "b", Delta: `x","delta":"y`},
		`{"blockId":"b"}`:                             {BlockID: "b"},
		`{"blockId":"b", "delta":"\u0041"}`:           {BlockID: "b", Delta: "A"},
	} {
		got, err := conversation.DecodeTextDelta([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", `{"blockId":"b","delta":"x`, `{"blockId":"b","delta":x"}`, `{"blockId":"b","delta":"x"}}`} {
		_, err := conversation.DecodeTextDelta([]byte(text))
		require.Error(t, err, text)
	}
}

//nolint:paralleltest // the test counts allocations
func TestDeltaIsEncodedWithoutCopies(t *testing.T) {
	var delta any = conversation.TextDelta{BlockID: "msg_1", Delta: "word "}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = conversation.Encode(delta) }), 1.0)
	encoded, err := conversation.Encode(delta)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = conversation.DecodeTextDelta(encoded) }), 1.0)
}
