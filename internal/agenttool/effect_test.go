package agenttool_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func call(t *testing.T, tool, input string) agenttool.Effect {
	t.Helper()
	c := agenttool.Call{Tool: tool, Input: json.RawMessage(input)}
	if tool == agenttool.SaveScreenshot {
		image, err := base64.StdEncoding.DecodeString(pixel)
		require.NoError(t, err)
		c.Image = image
	}
	return agenttool.Execute(c)
}

// fits reports whether an input matches the schema that agents see.
func fits(t *testing.T, tool, input string) bool {
	t.Helper()
	for _, known := range agenttool.All() {
		if known.Name != tool {
			continue
		}
		schema, err := jsonschema.UnmarshalJSON(strings.NewReader(string(known.Schema)))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		require.NoError(t, compiler.AddResource("schema.json", schema))
		compiled, err := compiler.Compile("schema.json")
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(input))
		require.NoError(t, err)
		return compiled.Validate(value) == nil
	}
	require.FailNow(t, "no such tool", tool)
	return false
}

func TestToolCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tool, input, kind, data string }{
		{"set_title", `{"title":" A  title "}`, "title", `{"title":"A title"}`},
		{"save_screenshot", `{"path":"a.png","description":"the page"}`, "screenshot", `{"image":{"id":"ID","mediaType":"image/png","bytes":70},"description":"the page"}`},
		{"report_git_state", `{"branch":"fix","baseBranch":"main","commit":"abc","commitCount":2}`, "git_state", `{"branch":"fix","baseBranch":"main","commit":"abc","commitCount":2,"source":"agent"}`},
		{"request_review", `{"title":"The fix","description":"why","files":["a.go"]}`, "review_requested", `{"title":"The fix","description":"why","files":["a.go"]}`},
		{
			"report_review", `{"summary":"good","verdict":"request_changes","findings":[{"file":"a.go","line":7,"severity":"error","comment":"leaks"},{"comment":"b"}]}`,
			"review_result", `{"summary":"good","verdict":"request_changes","findings":[{"file":"a.go","line":7,"severity":"error","comment":"leaks"},{"comment":"b"}]}`,
		},
		{"report_review", `{"summary":"good"}`, "review_result", `{"summary":"good"}`},
		{"create_pr", `{"title":"Fix","branch":"fix","body":"why","state":"draft"}`, "pull_request", `{"operation":"create","title":"Fix","branch":"fix","body":"why","state":"draft"}`},
		{"update_pr", `{"number":7,"url":"https://example.com/7","state":"open"}`, "pull_request", `{"operation":"update","number":7,"url":"https://example.com/7","state":"open"}`},
	} {
		require.True(t, fits(t, c.tool, c.input), c.input)
		e := call(t, c.tool, c.input)
		require.False(t, e.Answer.Failed, "%s: %s", c.input, e.Answer.Text)
		require.NotEmpty(t, e.Answer.Text)
		require.Len(t, e.Events, 1)
		require.Equal(t, conversation.EventType(c.kind), e.Events[0].Type)
		data, err := json.Marshal(e.Events[0].Data)
		require.NoError(t, err)
		want := c.data
		if len(e.Images) > 0 {
			want = strings.Replace(want, "ID", e.Images[0].ID, 1)
		}
		require.JSONEq(t, want, string(data))
	}
}

func TestInvalidToolCallsAreRefused(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("ä", n) }
	for _, c := range []struct {
		tool, input, says string
		unseen            bool // the schema cannot express the rule
	}{
		{"set_title", `{"title":"` + long(201) + `"}`, "at most 200", false},
		{"set_title", `{"title":7}`, "title", false},
		{"save_screenshot", `{"path":"a.png","description":"` + long(10_001) + `"}`, "at most 10000", false},
		{"save_screenshot", `{"path":"a.png","x":1}`, "unknown field", false},
		{"report_git_state", `{}`, "branch must not be empty", false},
		{"report_git_state", `{"branch":"` + long(256) + `"}`, "at most 255", false},
		{"report_git_state", `{"branch":"b","source":"workspace"}`, "unknown field", false},
		{"report_git_state", `{"branch":"b","commitCount":-1}`, "commitCount must be", false},
		{"report_git_state", `{"branch":"b","commitCount":1.5}`, "does not fit", false},
		{"request_review", `{"title":" "}`, "must not be empty", true},
		{"request_review", `{"title":"t","files":[""]}`, "files must not be empty", false},
		{"request_review", `{"title":"t","files":["a"` + strings.Repeat(`,"a"`, 100) + `]}`, "at most 100", false},
		{"request_review", `{"title":"t","files":["` + long(1025) + `"]}`, "at most 1024", false},
		{"report_review", `{"summary":""}`, "summary must not be empty", false},
		{"report_review", `{"summary":"s","verdict":"great"}`, "verdict must be one of", false},
		{"report_review", `{"summary":"s","findings":[{"comment":""}]}`, "comment must not be empty", false},
		{"report_review", `{"summary":"s","findings":[{"comment":"c","severity":"bad"}]}`, "severity must be one of", false},
		{"report_review", `{"summary":"s","findings":[{"comment":"c","line":-1}]}`, "line must be", false},
		{"report_review", `{"summary":"s","findings":[{"comment":"c","x":1}]}`, "unknown field", false},
		{"report_review", `{"summary":"s","findings":[{"comment":"` + long(4001) + `"}]}`, "at most 4000", false},
		{"report_review", `{"summary":"s","findings":[{"comment":"c"}` + strings.Repeat(`,{"comment":"c"}`, 100) + `]}`, "at most 100", false},
		{"create_pr", `{"title":"t"}`, "branch must not be empty", false},
		{"create_pr", `{"title":"t","branch":"b","operation":"update"}`, "operation is not a field", false},
		{"create_pr", `{"title":"t","branch":"b","body":"` + long(60_001) + `"}`, "at most 60000", false},
		{"session_message", `{"message":"m","to":"ses_1"}`, "or the id of a session", false},
		{"session_message", `{"message":"m","to":"everyone"}`, "or the id of a session", false},
		{"session_message", `{"message":" "}`, "must not be empty", true},
		{"session_message", `{"message":"a\u0000b"}`, "U+0000", true},
		{"session_message", `{"message":"` + long(20_001) + `"}`, "at most 20000", false},
		{"update_pr", `{"state":"great"}`, "one of: draft", false},
		{"update_pr", `{"url":"javascript:alert(1)"}`, "must be a URL", true},
		{"update_pr", `{"url":"https://a:b@example.com"}`, "without a user", true},
		{"update_pr", `{"url":"https://` + long(2048) + `"}`, "at most 2048", false},
		{"update_pr", `{"body":"` + strings.Repeat("x", agenttool.MaxInputBytes) + `"}`, "at most 262144", false},
	} {
		shown := fmt.Sprintf("%s %.80s", c.tool, c.input)
		e := call(t, c.tool, c.input)
		require.True(t, e.Answer.Failed, shown)
		require.Contains(t, e.Answer.Text, c.says, shown)
		require.Empty(t, e.Events, shown)
		require.Empty(t, e.Images, shown)
		require.Nil(t, e.Message, shown)
		require.Equal(t, c.unseen, fits(t, c.tool, c.input), shown)
	}
	e := agenttool.Execute(agenttool.Call{Tool: "save_screenshot", Input: json.RawMessage(`{"path":"a.svg"}`), Image: []byte("<svg>")})
	require.True(t, e.Answer.Failed)
	require.Contains(t, e.Answer.Text, "must be a PNG")
}

func TestToolNamesOfAgents(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{
		"mcp__overwinter__set_title": true, "overwinter_create_pr": true, "mcp_overwinter_request_review": true, "overwinter.update_pr": true,
		"set_title": false, "mcp__other__set_title": false, "mcp__overwinter__rm": false, "other_overwinter_set_title": false, "": false,
	} {
		require.Equal(t, own, agenttool.Own(name), name)
	}
}

func TestMessagesNameTheirSession(t *testing.T) {
	t.Parallel()
	const other = "ses_0190a0c0a0c070008000000000000001"
	for input, to := range map[string]string{
		`{"message":"continue"}`: "self", `{"message":"continue","to":"self"}`: "self", `{"message":"continue","to":""}`: "self",
		`{"message":"continue","to":"parent"}`: "parent", `{"message":"continue","to":"` + other + `"}`: other,
	} {
		require.Equal(t, !strings.Contains(input, `"to":""`), fits(t, "session_message", input))
		e := call(t, "session_message", input)
		require.False(t, e.Answer.Failed)
		require.Equal(t, &agenttool.Message{To: to, Content: "continue"}, e.Message)
		require.Empty(t, e.Events)
		require.Equal(t, to == "self", strings.Contains(e.Answer.Text, "this session"), e.Answer.Text)
	}
}
