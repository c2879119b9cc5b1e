package claude_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// testRun is the run of tests with made-up lines.
var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// played is the result of a run.
type played struct {
	events    []conversation.Event
	end       *agent.TurnEnd
	inputs    []string
	questions []agent.Question
	resolved  []string
}

// play translates lines as the frames of a run. With restart, a new translator resumes from the
// previous state before each line.
func play(t *testing.T, run agent.RunContext, restart bool, lines ...string) played {
	t.Helper()
	var all []agent.Frame
	for i, l := range lines {
		all = append(all, agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(l)})
	}
	return playFrames(t, run, restart, all)
}

func playFrames(t *testing.T, run agent.RunContext, restart bool, all []agent.Frame) played {
	t.Helper()
	tr, err := claude.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var p played
	for _, f := range all {
		if restart {
			state, err := tr.State()
			require.NoError(t, err)
			tr, err = claude.New().NewTranslator(run, state)
			require.NoError(t, err)
		}
		out, err := tr.Translate(f)
		require.NoError(t, err)
		p.events = append(p.events, out.Events...)
		p.questions = append(p.questions, out.Questions...)
		p.resolved = append(p.resolved, out.Resolved...)
		if len(out.Input) > 0 {
			p.inputs = append(p.inputs, string(out.Input))
		}
		if out.End != nil {
			require.Nil(t, p.end, "the turn ended twice")
			p.end = out.End
		}
	}
	return p
}

func (p played) blocks() []conversation.Block {
	var f conversation.Folder
	for _, e := range p.events {
		f.Add(e)
	}
	return f.Conversation().Threads[0].Blocks
}

// ours returns the uuid of the message for the prompt of the run.
func ours(t *testing.T) string {
	t.Helper()
	return uuidOf(t, prompt(t))
}

func prompt(t *testing.T) []byte {
	t.Helper()
	line, err := claude.New().Prompt(agent.PromptInput{RunID: testRun.RunID, Content: "do it"})
	require.NoError(t, err)
	return line
}

func uuidOf(t *testing.T, line []byte) string {
	t.Helper()
	var l struct {
		UUID string `json:"uuid"`
	}
	require.NoError(t, json.Unmarshal(line, &l))
	require.NotEmpty(t, l.UUID)
	return l.UUID
}

const (
	running = `{"type":"system","subtype":"session_state_changed","state":"running"}`
	idle    = `{"type":"system","subtype":"session_state_changed","state":"idle"}`
	done    = `{"type":"result","subtype":"success","is_error":false,"result":"ok","usage":{"input_tokens":1,"output_tokens":2},"total_cost_usd":0.5}`
	system  = `{"type":"system","subtype":"init","model":"opus"}`
)

func lifecycle(id, state string) string {
	return fmt.Sprintf(`{"type":"command_lifecycle","command_uuid":%q,"state":%q}`, id, state)
}

func replay(id string) string {
	return fmt.Sprintf(`{"type":"user","uuid":%q,"isReplay":true,"timestamp":"2026-11-21T01:00:00.000Z","message":{"role":"user","content":"do it"}}`, id)
}

func acknowledged(id string) string {
	return fmt.Sprintf(`{"type":"user","uuid":%q,"isReplay":true,"message":{"role":"user","content":"do it"}}`, id)
}

func TestContinuesFromAnyState(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			for _, name := range capture.Streams(t, dir) {
				all := capture.Frames(t, name)
				whole := playFrames(t, agent.RunContext{}, false, firstTurn(t, all))
				again := playFrames(t, agent.RunContext{}, true, firstTurn(t, all))
				require.Empty(t, cmp.Diff(inLog(t, whole.events), inLog(t, again.events)))
				require.Equal(t, whole.end, again.end)
				require.Equal(t, whole.questions, again.questions)
				require.Equal(t, whole.resolved, again.resolved)
			}
		})
	}
}

// inLog returns events in the form of the log.
func inLog(t *testing.T, events []conversation.Event) []string {
	t.Helper()
	out := make([]string, len(events))
	for i, e := range events {
		data, err := json.Marshal(e.Data)
		require.NoError(t, err)
		out[i] = fmt.Sprintf("%s %s %s %s", e.Type, e.ConversationID, e.At, data)
	}
	return out
}

// firstTurn returns the frames up to the end of the first turn.
func firstTurn(t *testing.T, all []agent.Frame) []agent.Frame {
	t.Helper()
	tr, err := claude.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	for i, f := range all {
		out, err := tr.Translate(f)
		require.NoError(t, err)
		if out.End != nil {
			return all[:i+1]
		}
	}
	return all
}

func TestTurnEndsWhenAgentIsIdleAndHasGivenResult(t *testing.T) {
	t.Parallel()
	id := ours(t)
	before := []string{running, lifecycle(id, "queued"), lifecycle(id, "started"), system, replay(id), done}
	p := play(t, testRun, true, before...)
	require.Nil(t, p.end, "subagents may be running")
	p = play(t, testRun, true, append(before, done, lifecycle(id, "completed"), idle, done, idle)...)
	require.Equal(t, &agent.TurnEnd{
		Outcome: session.OutcomeCompleted, Model: "opus",
		Usage: usage.Usage{InputTokens: 2, OutputTokens: 4, CostUSD: 0.5},
	}, p.end)
	b := p.blocks()[0]
	require.Equal(t, "prm_1", b.PromptID)
	require.Equal(t, "ada", b.Author)
	require.Equal(t, "do it", b.Content)
}

// TestUsageOfAnySizeIsCounted includes costs that are not finite, which could not be stored.
func TestUsageOfAnySizeIsCounted(t *testing.T) {
	t.Parallel()
	id := ours(t)
	huge := `{"type":"result","subtype":"success","is_error":false,"result":"ok","usage":{"input_tokens":1e300,"output_tokens":-1e300},"total_cost_usd":%s}`
	p := play(t, testRun, true, running, lifecycle(id, "started"), system, replay(id),
		fmt.Sprintf(huge, "-1e308"), fmt.Sprintf(huge, "1.7e308"), lifecycle(id, "completed"), idle)
	require.NotNil(t, p.end)
	require.Equal(t, usage.Usage{InputTokens: usage.MaxTurnCount, CostUSD: usage.MaxTurnCostUSD}, p.end.Usage)
	for _, e := range p.events {
		_, err := conversation.Encode(e.Data)
		require.NoError(t, err)
	}
}

func TestEarlierWorkDoesNotEndTurn(t *testing.T) {
	t.Parallel()
	id := ours(t)
	p := play(t, testRun, true, idle, system, done, lifecycle("another", "completed"), idle)
	require.Nil(t, p.end)
	require.Empty(t, p.inputs)
	p = play(t, testRun, true, running, system, lifecycle(id, "queued"), done, lifecycle(id, "started"), replay(id), idle)
	require.Equal(t, session.OutcomeFailed, p.end.Outcome, "idle without a result")
}

func TestKnownPromptIsContinued(t *testing.T) {
	t.Parallel()
	id := ours(t)
	for name, lines := range map[string][]string{
		"by a new process":          {acknowledged(id), lifecycle(id, "completed"), idle},
		"by the same":               {acknowledged(id), idle},
		"acknowledged in two parts": {acknowledged(id), lifecycle(id, "completed")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := play(t, testRun, true, lines...)
			require.Nil(t, p.end)
			require.Len(t, p.inputs, 1)
			require.Contains(t, p.inputs[0], "Continue.")
			require.True(t, strings.HasSuffix(p.inputs[0], "\n"))
			next := uuidOf(t, []byte(p.inputs[0]))
			require.NotEqual(t, id, next)
			require.Equal(t, p.inputs, play(t, testRun, false, lines...).inputs, "the same line again")
			require.Empty(t, p.blocks(), "it is shown already")

			p = play(t, testRun, true, append(lines, running, lifecycle(next, "started"), system, replay(next), done, lifecycle(next, "completed"), idle)...)
			require.Equal(t, session.OutcomeCompleted, p.end.Outcome)
			require.Len(t, p.inputs, 1)
		})
	}
}

func TestStateOfLongTextIsSmall(t *testing.T) {
	t.Parallel()
	tr, err := claude.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	var folder conversation.Folder
	no := int64(0)
	next := func(line string) {
		out, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		no++
		for _, e := range out.Events {
			folder.Add(e)
		}
		state, err := tr.State()
		require.NoError(t, err)
		require.Less(t, len(state), 1<<10)
		tr, err = claude.New().NewTranslator(testRun, state)
		require.NoError(t, err)
	}
	next(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}`)
	next(`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`)
	words := strings.Repeat("word ", 200)
	delta := `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + words + `"}}}`
	for range 200 {
		next(delta)
	}
	before, err := tr.State()
	require.NoError(t, err)
	_, err = tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: capture.Begun, Data: []byte(delta)})
	require.NoError(t, err)
	after, err := tr.State()
	require.NoError(t, err)
	require.Same(t, &before[0], &after[0], "an unchanged state is not encoded again")
	for _, e := range tr.Cut(capture.Begun) {
		folder.Add(e)
	}
	b := folder.Conversation().Threads[0].Blocks[0]
	require.Equal(t, strings.Repeat(words, 200), b.Content)
	require.Equal(t, conversation.Aborted, b.Status)
}

// TestUnacknowledgedInputIsKept covers a link that breaks after a write: the frame that requested
// the input is committed all the same.
func TestUnacknowledgedInputIsKept(t *testing.T) {
	t.Parallel()
	tr, err := claude.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	no := int64(0)
	next := func(line string) (input, unacknowledged string) {
		out, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		no++
		state, err := tr.State()
		require.NoError(t, err)
		tr, err = claude.New().NewTranslator(testRun, state)
		require.NoError(t, err)
		return string(out.Input), string(tr.(agent.Listener).Unacknowledged())
	}
	_, unacknowledged := next(acknowledged(ours(t)))
	require.Empty(t, unacknowledged)
	input, unacknowledged := next(idle)
	require.NotEmpty(t, input)
	require.Equal(t, input, unacknowledged)
	_, unacknowledged = next(running)
	require.Equal(t, input, unacknowledged, "it may be at something else")
	_, unacknowledged = next(lifecycle(uuidOf(t, []byte(input)), "started"))
	require.Empty(t, unacknowledged)
}

func TestAcknowledgedPromptWithoutResultIsUnknown(t *testing.T) {
	t.Parallel()
	lines := []string{acknowledged(ours(t)), idle}
	for range 8 {
		p := play(t, testRun, false, lines...)
		require.Nil(t, p.end)
		lines = append(lines, acknowledged(uuidOf(t, []byte(p.inputs[len(p.inputs)-1]))), idle)
	}
	p := play(t, testRun, true, lines...)
	require.Equal(t, session.OutcomeUnknown, p.end.Outcome)
	require.Equal(t, "already_delivered", p.end.Reason)
	require.Len(t, p.inputs, 8)
}

func TestFailureKeepsAgentMessage(t *testing.T) {
	t.Parallel()
	id := ours(t)
	for line, want := range map[string]agent.TurnEnd{
		`{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 no"}`:                                 {Outcome: session.OutcomeFailed, Reason: "API Error: 400 no"},
		`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["a","b"]}`:                            {Outcome: session.OutcomeFailed, Reason: "a; b"},
		`{"type":"result","subtype":"error_max_turns"}`:                                                                      {Outcome: session.OutcomeFailed, Reason: "error_max_turns"},
		`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":[]}`: {Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted},
		`{"type":"result","is_error":true,"result":"` + strings.Repeat("x", 5000) + `"}`:                                     {Outcome: session.OutcomeFailed, Reason: strings.Repeat("x", 1024)},
	} {
		p := play(t, testRun, true, running, lifecycle(id, "started"), replay(id), line, idle)
		require.Equal(t, &want, p.end, line)
		p = play(t, testRun, true, line) // a program that does not report its state
		require.Equal(t, &want, p.end, line)
	}
}

func TestEffectiveInterruptCancels(t *testing.T) {
	t.Parallel()
	id := ours(t)
	var request struct {
		ID string `json:"request_id"`
	}
	how := claude.New().Interrupt(testRun.RunID)
	require.NoError(t, json.Unmarshal(how.Stdin, &request))
	require.Positive(t, how.Grace)
	answer := func(id, subtype string) string {
		return fmt.Sprintf(`{"type":"control_response","response":{"subtype":%q,"request_id":%q,"response":{"still_queued":[]}}}`, subtype, id)
	}
	begin := []string{running, lifecycle(id, "started"), replay(id), done}
	require.Equal(t, session.OutcomeCancelled, play(t, testRun, true, append(begin, answer(request.ID, "success"), idle)...).end.Outcome)
	require.Equal(t, session.OutcomeCompleted, play(t, testRun, true, append(begin, answer(request.ID, "error"), idle)...).end.Outcome)
	require.Equal(t, session.OutcomeCompleted, play(t, testRun, true, append(begin, answer("interrupt-run_2", "success"), idle)...).end.Outcome)
}

func TestProcessExitEndsTurn(t *testing.T) {
	t.Parallel()
	for report, want := range map[string]agent.TurnEnd{
		`{"code":1,"stderr":"no key"}`:   {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`not a report`:                   {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`{"code":-1,"interrupted":true}`: {Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted},
	} {
		all := capture.Frames(t, "testdata/captures/killed-in-a-tool/stdout.jsonl")
		all = append(all, agent.Frame{No: int64(len(all)), Stream: agent.Exit, At: capture.Begun, Data: []byte(report)})
		p := playFrames(t, agent.RunContext{}, true, all)
		require.Equal(t, want.Outcome, p.end.Outcome)
		require.Equal(t, want.Reason, p.end.Reason)
		blocks := p.blocks()
		require.Equal(t, conversation.Aborted, blocks[len(blocks)-1].Status)
		problem, reported := p.events[len(p.events)-1].Data.(conversation.Problem)
		require.Equal(t, want.Outcome == session.OutcomeFailed, reported)
		if strings.Contains(report, "no key") {
			require.Contains(t, problem.Message, "no key")
		}
	}
}

func TestUnknownLineIsKept(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`{"type":"of the future","x":1}`, `{`, `"text"`, `{"type":"system","subtype":"new"}`, "\xff", `{"type":"user"`} {
		p := play(t, testRun, true, line)
		require.Len(t, p.blocks(), 1, line)
		b := p.blocks()[0]
		require.Equal(t, "unparsed", b.Subtype)
		require.Equal(t, "unparsed/run_1/0", b.ID)
		require.Equal(t, strings.ToValidUTF8(line, "\uFFFD"), b.Message)
	}
	p := play(t, testRun, true, `{"type":"x","y":"`+strings.Repeat("z", 100_000)+`"}`)
	require.Len(t, p.blocks()[0].Message, 1024)
	require.Empty(t, play(t, testRun, true, "", "  ", `{"type":"keep_alive"}`).events)
}

func TestQuestionIsHandedOnAndResolved(t *testing.T) {
	t.Parallel()
	p := playFrames(t, agent.RunContext{}, true, capture.Frames(t, "testdata/captures/asked-and-answered/stdout.jsonl"))
	require.Len(t, p.questions, 1)
	q := p.questions[0]
	require.Equal(t, agent.Inquiry, q.Kind)
	require.Equal(t, "AskUserQuestion", q.ToolName)
	require.Equal(t, "Which colour?", q.Title)
	require.Equal(t, []agent.InquiryItem{{
		Question: "Which colour?", Header: "Colour",
		Options: []agent.InquiryOption{{Label: "Red", Description: "The colour Red"}, {Label: "Blue", Description: "The colour Blue"}},
	}}, q.Inquiries)
	require.Equal(t, []string{q.ID}, p.resolved)

	p = playFrames(t, agent.RunContext{}, true, capture.Frames(t, "testdata/captures/plain-perm-deny/stdout.jsonl"))
	require.Len(t, p.questions, 1)
	require.Equal(t, agent.Permission, p.questions[0].Kind)
	require.Equal(t, "Bash: Run a shell command", p.questions[0].Title)
	require.NotEmpty(t, p.questions[0].ToolUseID)
	require.Equal(t, []string{p.questions[0].ID}, p.resolved, "by the result of its call")

	ask := `{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t1"}}`
	require.Equal(t, []string{"q1"}, play(t, testRun, true, ask, `{"type":"control_cancel_request","request_id":"q1"}`).resolved)
	require.Equal(t, []string{"q1"}, play(t, testRun, true, ask, done).resolved, "by the end of the turn")
	require.Empty(t, play(t, testRun, true, `{"type":"control_request","request_id":"q2","request":{"subtype":"hook_callback"}}`).questions)
}

func TestTitlesAreReportedFromMirror(t *testing.T) {
	t.Parallel()
	p := play(t, testRun, true, `{"type":"transcript_mirror","entries":[{"type":"ai-title","aiTitle":"On whales","sessionId":"x"}]}`)
	require.Equal(t, []conversation.Event{{Type: conversation.EventTitle, At: capture.Begun, Data: conversation.Title{Title: "On whales"}}}, p.events)
}

func TestUnrepeatedMessageIsReadFromTranscript(t *testing.T) {
	t.Parallel()
	mirror := `{"type":"transcript_mirror","entries":[` +
		`{"type":"user","uuid":"u1","isSidechain":false,"message":{"role":"user","content":"hello"}},` +
		`{"type":"user","uuid":"u2","isMeta":true,"message":{"role":"user","content":"reminder"}},` +
		`{"type":"user","uuid":"u3","toolUseResult":"x","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}},` +
		`{"type":"attachment","uuid":"a1","attachment":{"type":"queued_command","prompt":"and this","source_uuid":"u4"}}]}`
	p := play(t, testRun, true, mirror, mirror, replay("u1"))
	var got []string
	for _, b := range p.blocks() {
		got = append(got, b.ID+" "+b.Content)
	}
	require.Equal(t, []string{"u1 hello", "u4 and this"}, got)
	require.Len(t, p.events, 4, "each once")
}

func TestMergedMessageIsShownOnce(t *testing.T) {
	t.Parallel()
	p := play(t, testRun, true, lifecycle("u1", "queued"), lifecycle("u2", "queued"), system, acknowledged("u1"),
		lifecycle("u1", "started"), lifecycle("u2", "started"),
		`{"type":"user","uuid":"u2","isReplay":true,"timestamp":"2026-11-21T01:00:00.000Z","message":{"role":"user","content":[{"type":"text","text":"one\n"},{"type":"text","text":"two"}]}}`)
	require.Len(t, p.blocks(), 1)
	require.Equal(t, "one\n\ntwo", p.blocks()[0].Content)
}

func TestTextOfFailedAttemptIsRemoved(t *testing.T) {
	t.Parallel()
	start := func(id string) string {
		return fmt.Sprintf(`{"type":"stream_event","event":{"type":"message_start","message":{"id":%q}}}`, id)
	}
	block := `{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`
	delta := `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half"}}}`
	stop := `{"type":"stream_event","event":{"type":"message_stop"},"abandoned_blocks":{"api_message_id":"m1","from_block_index":0}}`
	failed := `{"type":"assistant","uuid":"e1","is_api_error_message":true,"message":{"id":"x","model":"<synthetic>","content":[{"type":"text","text":"API Error"}]}}`
	for name, lines := range map[string][]string{
		"abandoned":           {start("m1"), block, delta, stop},
		"capture.Begun again": {start("m1"), block, delta, start("m2")},
		"given up":            {start("m1"), block, delta, failed},
		"sent whole then":     {start("m1"), block, delta, `{"type":"assistant","uuid":"u","message":{"id":"m2","content":[{"type":"text","text":"whole"}]}}`},
	} {
		for _, b := range play(t, testRun, true, lines...).blocks() {
			require.NotEqual(t, "m1/0", b.ID, name)
		}
	}
	require.Equal(t, "half", play(t, testRun, true, start("m1"), block, delta, done).blocks()[0].Content, "the end of a turn aborts it")
}

// TestRefusedKeyAbortsTurnOnce checks the abort, without which the agent would resend the
// request for minutes.
func TestRefusedKeyAbortsTurnOnce(t *testing.T) {
	t.Parallel()
	retry := func(attempt, status int) string {
		return fmt.Sprintf(`{"type":"system","subtype":"api_retry","attempt":%d,"max_retries":10,"error_status":%d,"uuid":"u%d"}`, attempt, status, attempt)
	}
	for _, restart := range []bool{false, true} {
		p := play(t, testRun, restart,
			`{"type":"system","subtype":"session_state_changed","state":"running"}`, retry(1, 529), retry(2, 401), retry(3, 401),
			`{"type":"result","subtype":"error_during_execution","is_error":false,"terminal_reason":"aborted_streaming"}`,
		)
		require.Len(t, p.inputs, 1)
		require.Contains(t, p.inputs[0], `"interrupt"`)
		require.NotContains(t, p.inputs[0], "interrupt-"+testRun.RunID, "the abort of a person has another id")
		q := play(t, testRun, restart, retry(1, 401), `{"type":"result","subtype":"error_during_execution","terminal_reason":"aborted_streaming"}`)
		require.Equal(t, session.OutcomeFailed, q.end.Outcome)
		require.Equal(t, &agent.Unauthorized{Status: 401}, q.end.Unauthorized)
	}
}

func TestStateOfAnotherAgentIsRefused(t *testing.T) {
	t.Parallel()
	_, err := claude.New().NewTranslator(testRun, []byte("{"))
	require.ErrorContains(t, err, "run_1")
}

// TestLineWithoutMessageLeavesTextInPlace checks that a line without a message id does not
// abandon the message being written.
func TestLineWithoutMessageLeavesTextInPlace(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`{"type":"assistant"}`, `{"type":"assistant","message":{}}`, `{"type":"user"}`, `{"type":"system"}`, `{"type":"stream_event"}`} {
		got := play(t, testRun, true,
			`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`,
			`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`,
			`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}}`,
			line,
			`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"again"}}}`,
		)
		blocks := got.blocks()
		require.NotEmpty(t, blocks, line)
		require.Equal(t, "word again", blocks[0].Content, line)
	}
}

//nolint:paralleltest // the test counts allocations
func TestLongTextIsTranslatedInLinearTime(t *testing.T) {
	line := func(n int) []agent.Frame {
		delta := `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}}`
		all := []string{
			`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`,
			`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`,
		}
		var out []agent.Frame
		for i, l := range append(all, strings.Split(strings.Repeat(delta+"\n", n), "\n")...) {
			out = append(out, agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(l)})
		}
		return out
	}
	short := testing.AllocsPerRun(1, func() { playFrames(t, testRun, false, line(1000)) })
	long := testing.AllocsPerRun(1, func() { playFrames(t, testRun, false, line(16000)) })
	require.Less(t, long, 20*short)
	text := playFrames(t, testRun, false, line(16000)).blocks()[0].Content
	require.Equal(t, 16000, bytes.Count([]byte(text), []byte("word ")))
}

// TestImagesOfPendingResultsAreHandedOver checks a result that arrives before its message is
// complete. The result is held, and its block may be shown by a later translator, which has only
// the name of the image.
func TestImagesOfPendingResultsAreHandedOver(t *testing.T) {
	t.Parallel()
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	message := func(rest string) string {
		return `{"type":"stream_event","uuid":"s","parent_tool_use_id":null,"event":{` + rest + `}}`
	}
	lines := []string{
		system,
		message(`"type":"message_start","message":{"id":"msg_1"}`),
		`{"type":"assistant","uuid":"a1","message":{"id":"msg_1","content":[{"type":"tool_use","id":"call","name":"Read","input":{}}]}}`,
		`{"type":"user","uuid":"u1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"call","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}},{"type":"image","source":{"type":"base64","media_type":"image/svg+xml","data":"PHN2Zz4="}}]}]}}`,
		message(`"type":"message_stop"`),
	}
	tr, err := claude.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	var images []conversation.ImageData
	var shown []conversation.Image
	for i, line := range lines {
		out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		images = append(images, out.Images...)
		if i == 3 {
			require.Len(t, images, 1, "the other is of no type that is stored")
		}
		for _, e := range out.Events {
			if d, ok := e.Data.(conversation.BlockComplete); ok && d.Block.Type == conversation.ToolResult {
				require.Equal(t, 4, i, "it waits for the end of the message")
				shown = append(shown, d.Block.Images...)
			}
		}
		state, err := tr.State()
		require.NoError(t, err)
		require.NotContains(t, string(state), pixel[:20])
		tr, err = claude.New().NewTranslator(testRun, state)
		require.NoError(t, err)
	}
	require.Equal(t, []conversation.Image{images[0].Image}, shown)
	require.Len(t, images[0].Data, 70)
}
