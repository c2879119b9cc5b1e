package opencode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// outcome is the result of the lines of a run.
type outcome struct {
	events []conversation.Event
	end    *agent.TurnEnd
	blocks []conversation.Block // of the main conversation
}

// begun is the bridge's note that begins testRun. The newest message of the previous turn is msg_1.
var begun = fmt.Sprintf(`{"overwinter":{"type":"run","runId":%q,"id":"ses_1","data":{"before":"msg_1"}}}`, testRun.RunID)

// ran translates a run that has begun.
func ran(t *testing.T, lines ...string) outcome {
	t.Helper()
	tr, err := opencode.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	var out outcome
	for i, line := range append([]string{begun}, lines...) {
		got, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		out.events = append(out.events, got.Events...)
		if got.End != nil {
			out.end = got.End
		}
	}
	var f conversation.Folder
	for _, e := range append(slices.Clone(out.events), tr.Cut(capture.Begun)...) {
		f.Add(e)
	}
	out.blocks = f.Conversation().Threads[0].Blocks
	return out
}

func event(kind, properties string) string {
	return fmt.Sprintf(`{"id":"evt_1","type":%q,"properties":{%s}}`, kind, properties)
}

// answer returns a message of the model; rest contains more of its fields.
func answer(id, rest string) string {
	return event("message.updated", fmt.Sprintf(`"info":{"id":%q,"sessionID":"ses_1","role":"assistant","time":{"created":1}%s}`, id, rest))
}

func part(id, message, rest string) string {
	return event("message.part.updated", fmt.Sprintf(`"part":{"id":%q,"messageID":%q,"sessionID":"ses_1",%s}`, id, message, rest))
}

func text(id, message, words string) string {
	return part(id, message, fmt.Sprintf(`"type":"text","text":%q,"time":{"start":1,"end":2}`, words))
}

func note(kind, rest string) string {
	return fmt.Sprintf(`{"overwinter":{"type":%q,"runId":%q%s}}`, kind, testRun.RunID, rest)
}

const (
	apiError = `,"error":{"name":"APIError","data":{"message":"no quota"}}`
	aborted  = `,"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}`
	over     = `{"outcome":""}`
)

// updates returns the changes of a block.
func (o outcome) updates(id string) []conversation.Updates {
	var out []conversation.Updates
	for _, e := range o.events {
		if d, ok := e.Data.(conversation.BlockUpdate); ok && d.BlockID == id {
			out = append(out, d.Updates)
		}
	}
	return out
}

func (o outcome) contents() []string {
	var out []string
	for _, b := range o.blocks {
		out = append(out, fmt.Sprintf("%s %s %s%s", b.Type, b.Status, b.Content, b.Message))
	}
	return out
}

func TestMessagesOfEarlierTurnsAreLeftOut(t *testing.T) {
	t.Parallel()
	got := ran(t, answer("msg_0", ""), text("prt_0", "msg_0", "old"), answer("msg_1", ""), text("prt_1", "msg_1", "old"),
		answer("msg_2", ""), text("prt_2", "msg_2", "new"), text("prt_3", "msg_9", "of a message that was not announced"))
	require.Equal(t, []string{"assistant_text complete new"}, got.contents())
}

func TestPromptOfRunIsSigned(t *testing.T) {
	t.Parallel()
	mine := "msg_0" + opencodeformat.RunMark(testRun.RunID)
	user := func(id string) string {
		return event("message.updated", fmt.Sprintf(`"info":{"id":%q,"sessionID":"ses_1","role":"user","time":{"created":1}}`, id))
	}
	got := ran(t, user(mine), text("prt_1", mine, "mine"), user("msg_2"), text("prt_2", "msg_2", "of a command"))
	require.Len(t, got.blocks, 2)
	require.Equal(t, testRun.PromptID, got.blocks[0].PromptID, "its ID is older than that of the last message, and has the mark of the run")
	require.Equal(t, testRun.Author, got.blocks[0].Author)
	require.Empty(t, got.blocks[1].PromptID)
	require.Empty(t, got.blocks[1].Author)
}

func TestTurnOutcomes(t *testing.T) {
	t.Parallel()
	failed := func(session, err string) string {
		return event("session.error", fmt.Sprintf(`"sessionID":%q%s`, session, err))
	}
	child := event("session.updated", `"info":{"id":"ses_2","parentID":"ses_1"}`)
	deadline := note("deadline", `,"id":"msg_2","message":"the model does not answer"`)
	for name, c := range map[string]struct {
		lines    []string
		reported string
		result   session.Outcome
		reason   string
	}{
		"all is well":                  {nil, over, session.OutcomeCompleted, ""},
		"the model refuses":            {[]string{failed("ses_1", apiError)}, over, session.OutcomeFailed, "no quota"},
		"the turn was aborted":         {[]string{failed("ses_1", aborted)}, over, session.OutcomeCancelled, session.ReasonAborted},
		"the agent got over it":        {[]string{failed("ses_1", apiError), answer("msg_3", "")}, over, session.OutcomeCompleted, ""},
		"a subagent failed":            {[]string{child, failed("ses_2", apiError)}, over, session.OutcomeCompleted, ""},
		"the bridge gave up":           {[]string{failed("ses_1", aborted), deadline}, over, session.OutcomeFailed, "the model does not answer"},
		"the bridge says how it ended": {[]string{deadline}, `{"outcome":"unknown","reason":"who knows"}`, session.OutcomeUnknown, "who knows"},
		"an error without an error":    {[]string{failed("ses_1", "")}, over, session.OutcomeCompleted, ""},
		"a bridge ignores idle":        {[]string{event("session.idle", `"sessionID":"ses_1"`)}, over, session.OutcomeCompleted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := append([]string{answer("msg_2", "")}, c.lines...)
			require.Nil(t, ran(t, lines...).end, "only the bridge ends the turn")
			got := ran(t, append(lines, note("end", `,"data":`+c.reported))...)
			require.NotNil(t, got.end)
			require.Equal(t, c.result, got.end.Outcome)
			require.Equal(t, c.reason, got.end.Reason)
		})
	}
}

func TestFailureOfAnswerIsShownOnce(t *testing.T) {
	t.Parallel()
	failed := event("session.error", `"sessionID":"ses_1"`+apiError)
	got := ran(t, answer("msg_2", ""), failed, answer("msg_2", apiError), failed)
	require.Equal(t, []string{"system complete no quota"}, got.contents())
	require.Equal(t, []string{}, append([]string{}, ran(t, answer("msg_2", aborted)).contents()...), "an aborted answer is not a failure")

	early := ran(t, failed)
	require.Empty(t, early.blocks)
	require.Equal(t, conversation.Problem{Code: "agent_error", Message: "no quota"}, early.events[len(early.events)-1].Data,
		"there is no answer to show it at")
}

func TestNotesOfAnotherRunAreIgnored(t *testing.T) {
	t.Parallel()
	got := ran(t, `{"overwinter":{"type":"deadline","runId":"run_other","message":"x"}}`, `{"overwinter":{"type":"end","runId":"run_other","data":{"outcome":"failed"}}}`)
	require.Nil(t, got.end)
	got = ran(t, `{"overwinter":{"type":"run","runId":"run_other","id":"ses_9","data":{"before":"msg_9"}}}`, answer("msg_2", ""), text("prt_2", "msg_2", "new"))
	require.Equal(t, []string{"assistant_text complete new"}, got.contents())
}

func call(state string) string {
	return part("prt_5", "msg_2", `"type":"tool","tool":"bash","callID":"call_1","state":{`+state+`}`)
}

func printed(n int) string {
	return call(fmt.Sprintf(`"status":"running","input":{"command":"make"},"metadata":{"output":%q}`, strings.Repeat("x", n)))
}

func TestCallOutputIsReportedInLargeSteps(t *testing.T) {
	t.Parallel()
	got := ran(t, answer("msg_2", ""), call(`"status":"pending","input":{}`), printed(0), printed(100), printed(124), printed(125), printed(150), printed(157))
	var shown []int
	for _, u := range got.updates("prt_5/result") {
		shown = append(shown, len(u.Output)-2) // without the quotation marks
	}
	require.Equal(t, []int{100, 125, 157}, shown, "a quarter more at least")
	calls := got.updates("prt_5")
	require.Len(t, calls, 1, "that it runs is said once")
	require.Equal(t, conversation.Running, calls[0].Status)
	require.JSONEq(t, `{"command":"make"}`, string(calls[0].Input))
}

func TestInterruptedCallKeepsInput(t *testing.T) {
	t.Parallel()
	got := ran(t, answer("msg_2", ""), printed(1))
	require.Len(t, got.blocks, 1, "it has no result")
	require.Equal(t, conversation.Aborted, got.blocks[0].Status)
	require.JSONEq(t, `{"command":"make"}`, string(got.blocks[0].Input))

	long := fmt.Sprintf(`"status":"running","input":{"command":%q}`, strings.Repeat("x", 13<<10))
	require.Empty(t, ran(t, answer("msg_2", ""), call(long)).blocks[0].Input, "there is no room for more than 12 KiB")
}

func TestCallOutcomes(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]struct {
		status conversation.BlockStatus
		output string
	}{
		`"status":"completed","input":{},"output":"done"`: {conversation.Success, `"done"`},
		`"status":"completed","input":{},"output":"some\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>"`: {
			conversation.Aborted, `"some\n\n\u003cshell_metadata\u003e\nUser aborted the command\n\u003c/shell_metadata\u003e"`,
		},
		`"status":"error","input":{},"error":"no such file"`:                                                              {conversation.Failed, `"no such file"`},
		`"status":"error","input":{},"error":"no such file","metadata":{"output":"some"}`:                                 {conversation.Failed, `"no such file"`},
		`"status":"error","input":{},"error":"Tool execution aborted"`:                                                    {conversation.Aborted, `"Tool execution aborted"`},
		`"status":"error","input":{},"error":"Tool execution aborted","metadata":{"output":"some","interrupted":"words"}`: {conversation.Aborted, `"some"`},
		`"status":"error","input":{},"error":"Task cancelled"`:                                                            {conversation.Aborted, `"Task cancelled"`},
		`"status":"error","input":{},"error":"stopped","metadata":{"interrupted":true}`:                                   {conversation.Aborted, `"stopped"`},
	} {
		got := ran(t, answer("msg_2", ""), printed(1), call(state), call(`"status":"completed","input":{},"output":"repeated"`))
		require.Len(t, got.blocks, 2, state)
		require.Equal(t, want.status, got.blocks[0].Status, state)
		require.Equal(t, want.status, got.blocks[1].Status, state)
		require.Equal(t, want.status != conversation.Success, got.blocks[1].IsError, state)
		require.JSONEq(t, want.output, string(got.blocks[1].Output), state)
		require.Equal(t, "prt_5", got.blocks[1].ToolUseID)
	}
}

func TestRemovedPartRemovesResult(t *testing.T) {
	t.Parallel()
	got := ran(t, answer("msg_2", ""), printed(1), event("message.part.removed", `"messageID":"msg_2","partID":"prt_5"`))
	require.Empty(t, got.blocks)
}

func TestSubagentIsNamedAsSoonAsItIsKnown(t *testing.T) {
	t.Parallel()
	task := func(state string) string {
		return part("prt_5", "msg_2", `"type":"tool","tool":"task","callID":"call_1","state":{`+state+`}`)
	}
	got := ran(t, answer("msg_2", ""), task(`"status":"pending","input":{}`),
		task(`"status":"running","input":{"subagent_type":"general"}`),
		task(`"status":"running","input":{"subagent_type":"general"},"metadata":{"sessionId":"ses_2"}`),
		task(`"status":"running","input":{"subagent_type":"general"},"metadata":{"sessionId":"ses_2"}`))
	changes := got.updates("prt_5")
	require.Len(t, changes, 2, "unchanged fields are not reported again")
	require.Equal(t, "general", changes[0].Name)
	require.Empty(t, changes[0].SubagentID)
	require.Equal(t, "ses_2", changes[1].SubagentID)
	require.Empty(t, changes[1].Status)
}

func TestTitleIsOfMainSession(t *testing.T) {
	t.Parallel()
	titled := func(id, title, rest string) string {
		return event("session.updated", fmt.Sprintf(`"info":{"id":%q,"title":%q%s}`, id, title, rest))
	}
	long := strings.Repeat("x", 300)
	got := ran(t, titled("ses_1", "New session - 2026-11-21", ""), titled("ses_1", "First", ""), titled("ses_1", "First", ""),
		titled("ses_2", "Of a subagent", `,"parentID":"ses_1"`), titled("ses_3", "Of another", ""), titled("ses_1", "", ""), titled("ses_1", long, ""))
	var titles []string
	for _, e := range got.events {
		if d, ok := e.Data.(conversation.Title); ok {
			titles = append(titles, d.Title)
		}
	}
	require.Len(t, titles, 2)
	require.Equal(t, "First", titles[0])
	require.Equal(t, opencodeformat.Bounded(long, 256), titles[1])
	require.Less(t, len(titles[1]), 300)
}

func TestUsageIsSumOfSteps(t *testing.T) {
	t.Parallel()
	finish := func(id, tokens, cost string) string {
		return part(id, "msg_2", `"type":"step-finish","tokens":`+tokens+`,"cost":`+cost)
	}
	first := finish("prt_6", `{"input":1,"output":2,"reasoning":4,"cache":{"read":8,"write":16}}`, "0.5")
	got := ran(t, answer("msg_2", `,"providerID":"anthropic","modelID":"claude"`), printed(1), first, first, finish("prt_7", `{"input":100,"output":200}`, "0.25"),
		finish("prt_8", `"words"`, `"words"`), finish("prt_9", `{}`, "-1"), note("end", `,"data":`+over))
	require.Equal(t, usage.Usage{InputTokens: 125, OutputTokens: 206, CostUSD: 0.75, ToolCalls: 1}, got.end.Usage)
	require.Equal(t, "anthropic/claude", got.end.Model)
}

func TestRetryIsShownWhileItLasts(t *testing.T) {
	t.Parallel()
	retry := event("session.status", `"sessionID":"ses_1","status":{"type":"retry","attempt":2,"message":"overloaded"}`)
	shown := func(lines ...string) int {
		open := 0
		for _, e := range ran(t, append([]string{answer("msg_2", "")}, lines...)...).events {
			switch d := e.Data.(type) {
			case conversation.BlockStart:
				if d.Block.Subtype == "retry" {
					require.Equal(t, "attempt 2 failed: overloaded", d.Block.Message)
					open++
				}
			case conversation.BlockRemoved:
				open--
			}
		}
		return open
	}
	require.Equal(t, 1, shown(retry))
	require.Equal(t, 1, shown(retry, retry), "one at a time")
	require.Equal(t, 0, shown(retry, text("prt_2", "msg_2", "it works")))
	require.Equal(t, 1, shown(retry, event("session.status", `"sessionID":"ses_1","status":{"type":"busy"}`)))
	require.Empty(t, ran(t, answer("msg_2", ""), retry).blocks, "nothing is left of it when the turn is cut")
}

func TestIgnoredEventsAreNotUnparsed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"server.connected", "session.diff", "session.idle", "session.next.step", "message.removed", "message.part.patched", "permission.updated", "todo.updated", "lsp.client.diagnostics"} {
		require.Empty(t, ran(t, event(kind, `"sessionID":"ses_1"`)).blocks, kind)
	}
	for _, line := range []string{"no json", `{"type":""}`, event("session.unheard-of", ""), event("message.unheard-of", ""), `{"id":"evt","type":"message.updated"}`} {
		require.Len(t, ran(t, line).blocks, 1, line)
		require.Equal(t, "unparsed", ran(t, line).blocks[0].Subtype)
	}
}
