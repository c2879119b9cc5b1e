package demo

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// everything is a script with every element that a turn can have.
const everything = "hello there\nthink: hm, well\nwrite a.txt: a <b> & c\n$ cat a.txt; exit 3\ntitle: All of it\n" +
	"subagent bob: $ echo from bob\nsubagent eve: think: alone\nask: well? | yes | no\nfinal words\nfail: at last"

func TestContinuesFromAnyStateWithSameEvents(t *testing.T) {
	t.Parallel()
	stage := newStage(t)
	stage.permissions.Default = permission.Ask
	stage.answers = []agent.Answer{
		{Decision: agent.DecisionSession},
		{Decision: agent.DecisionOnce},
		{Decision: agent.DecisionReject},
		{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"well?": "yes"})},
	}
	fs := stage.play(t, "r1", everything)
	require.Empty(t, stage.answers)
	fs = append(fs, agent.Frame{No: int64(len(fs)), Stream: agent.Exit, At: begun, Data: []byte(`{"code":0}`)})
	rapid.Check(t, func(rt *rapid.T) {
		length := rapid.IntRange(0, len(fs)).Draw(rt, "frames") // up to and including len(fs)
		journal := append([]agent.Frame(nil), fs[:length]...)
		for i := range journal { // make some frames unknown
			if rapid.IntRange(0, 9).Draw(rt, "strange") == 0 {
				journal[i].Data = rapid.SliceOf(rapid.Byte()).Draw(rt, "data")
			}
		}
		if rapid.Bool().Draw(rt, "crashes") {
			journal = append(journal, agent.Frame{No: int64(length), Stream: agent.Exit, At: begun, Data: []byte(`{"code":3,"stderr":"x"}`)})
		}
		want := read(t, "r1", journal, func(int) bool { return false })
		got := read(t, "r1", journal, func(int) bool { return rapid.Bool().Draw(rt, "restart") })
		if diff := cmp.Diff(inLog(t, want.Events), inLog(t, got.Events)); diff != "" {
			rt.Fatalf("- without restarts, + with them:\n%s", diff)
		}
		want.Events, got.Events = nil, nil
		if diff := cmp.Diff(want.Translation, got.Translation); diff != "" {
			rt.Fatal(diff)
		}
		got.requireSettled(rt)
	})
}

func TestProcessExitEndsTurnInTranslator(t *testing.T) {
	t.Parallel()
	running := newStage(t).play(t, "r1", "sleep 0s\nhello")[:4] // the tool is running
	for report, want := range map[string]agent.TurnEnd{
		`{"code":3}`:                      {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`{"code":0}`:                      {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`{"code":-1,"signal":"killed"}`:   {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`not a report`:                    {Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed},
		`{"code":-1,"interrupted":true}`:  {Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted},
		`{"code":143,"interrupted":true}`: {Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted},
	} {
		journal := append(append([]agent.Frame(nil), running...), agent.Frame{No: 4, Stream: agent.Exit, At: begun, Data: []byte(report)})
		events, end := translated(t, "r1", journal)
		want.Model, want.Usage = demoformat.Name, usage.Usage{InputTokens: 3, ToolCalls: 1}
		require.Equal(t, &want, end, report)
		blocks := fold(events).Threads[0].Blocks
		require.Equal(t, conversation.Aborted, blocks[len(blocks)-1].Status, report)
		_, reported := events[len(events)-1].Data.(conversation.Problem)
		require.Equal(t, want.Outcome == session.OutcomeFailed, reported, "%s: a crash is reported, an abort is not", report)
	}
}

// TestStateOfLongTextIsSmall: the state is stored with every commit.
func TestStateOfLongTextIsSmall(t *testing.T) {
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("word ", 500))
	fs := newStage(t).play(t, "r1", text)
	fs = fs[:len(fs)-3] // stopped before the complete text
	tr, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, nil)
	require.NoError(t, err)
	var events []conversation.Event
	var last []byte
	kept := 0
	for _, f := range fs {
		out, err := tr.Translate(f)
		require.NoError(t, err)
		events = append(events, out.Events...)
		state, err := tr.State()
		require.NoError(t, err)
		require.Less(t, len(state), 1<<10)
		if last != nil && &state[0] == &last[0] {
			kept++
		}
		last = state
	}
	require.Greater(t, kept, 400, "an unchanged state is not encoded again")
	resumed, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, last)
	require.NoError(t, err)
	blocks := fold(append(events, resumed.Cut(begun)...)).Threads[0].Blocks
	b := blocks[len(blocks)-1]
	require.Equal(t, conversation.Aborted, b.Status)
	require.Greater(t, len(b.Content), 2000)
	require.True(t, strings.HasPrefix(text, b.Content), b.Content)
}

// TestStateOfEarlierReleaseIsContinued: earlier releases kept the whole text of an open block.
func TestStateOfEarlierReleaseIsContinued(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word ", 100)
	stored := `{"v":1,"open":[{"conversation":"main","block":{"id":"b","type":"assistant_text","status":"streaming",` +
		`"createdAt":"2026-11-23T00:00:00.000Z","content":"` + text + `"}}],"usage":{"input":0,"output":0}}`
	tr, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, []byte(stored))
	require.NoError(t, err)
	cut := tr.Cut(begun)
	require.Len(t, cut, 1)
	whole, ok := cut[0].Data.(conversation.BlockComplete)
	require.True(t, ok)
	require.Equal(t, text, whole.Block.Content)
}

func TestSubagentBlocksCloseBeforeSubagent(t *testing.T) {
	t.Parallel()
	fs := newStage(t).play(t, "r1", "subagent bob: one two three")
	fs = slices.DeleteFunc(fs, func(f agent.Frame) bool { return f.No > 6 }) // stopped after two words
	tr, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, nil)
	require.NoError(t, err)
	for _, f := range fs {
		_, err := tr.Translate(f)
		require.NoError(t, err)
	}
	var closed []conversation.BlockType
	for _, e := range tr.Cut(begun) {
		d, ok := e.Data.(conversation.BlockComplete)
		require.True(t, ok)
		require.Equal(t, conversation.Aborted, d.Block.Status)
		closed = append(closed, d.Block.Type)
	}
	require.Equal(t, []conversation.BlockType{conversation.AssistantText, conversation.Subagent}, closed)
}

func TestCrashReportsEndOfStderr(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(agent.ExitReport{Code: 2, Stderr: strings.Repeat("x", 5000) + " out of memory\n"})
	require.NoError(t, err)
	events, _ := translated(t, "r1", []agent.Frame{{Stream: agent.Exit, At: begun, Data: data}})
	problem, ok := events[len(events)-1].Data.(conversation.Problem)
	require.True(t, ok)
	require.Equal(t, session.ReasonAgentCrashed, problem.Code)
	require.Contains(t, problem.Message, "exit code 2")
	require.True(t, strings.HasSuffix(problem.Message, "out of memory"), problem.Message)
	require.Less(t, len(problem.Message), 2*maxRaw)
}

func TestLinesAfterEndAreIgnored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.play(t, "r1", "hello")
	want, _ := translated(t, "r1", first)
	more := append(append([]agent.Frame(nil), first...), s.play(t, "r2", "more")...)
	more = append(more, agent.Frame{Stream: agent.Exit, At: begun, Data: []byte(`{"code":1}`)})
	got, end := translated(t, "r1", more)
	require.Equal(t, want, got)
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
}

func TestLinesOfAnotherRunAreIgnored(t *testing.T) {
	t.Parallel()
	events, end := translated(t, "r2", newStage(t).play(t, "r1", "hello"))
	require.Empty(t, events)
	require.Nil(t, end)
}

func TestKeepsBeginningOfLineItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	f := agent.Frame{No: 7, Stream: agent.Stdout, At: begun, Data: []byte("panic: \xff" + strings.Repeat("x", 5000))}
	events, end := translated(t, "r1", []agent.Frame{f})
	require.Nil(t, end)
	require.Len(t, events, 2)
	b := fold(events).Threads[0].Blocks[0]
	require.Equal(t, "unparsed/r1/7", b.ID)
	require.Equal(t, conversation.System, b.Type)
	require.Equal(t, "unparsed", b.Subtype)
	require.Equal(t, conversation.Complete, b.Status)
	require.True(t, strings.HasPrefix(b.Message, "panic: \uFFFDx"), b.Message)
	require.Less(t, len(b.Message), maxRaw+8)
}

func TestForeignStateIsError(t *testing.T) {
	t.Parallel()
	_, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, []byte("{"))
	require.ErrorContains(t, err, "r1")
}

func TestPromptOfOneRunAlwaysHasOneUUID(t *testing.T) {
	t.Parallel()
	id := func(run, content string) string {
		data, err := Adapter{}.Prompt(agent.PromptInput{RunID: run, Content: content, At: time.Now()})
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(data), "\n"))
		var l demoformat.Line
		require.NoError(t, json.Unmarshal(data, &l))
		return l.UUID
	}
	require.Equal(t, id("r1", "a"), id("r1", "a\nb"))
	require.NotEqual(t, id("r1", "a"), id("r2", "a"))
	_, err := Adapter{}.Prompt(agent.PromptInput{})
	require.Error(t, err)
}

func TestLaunchRejectsPathsOutsideDirectory(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "..", "a/b", "*", "[a]"} {
		_, err := Adapter{}.Launch(agent.LaunchInput{SessionID: id, Home: "/h", Workspace: "/w"})
		require.Error(t, err, id)
	}
	_, err := Adapter{}.Launch(agent.LaunchInput{SessionID: "s"})
	require.Error(t, err)
	l, err := Adapter{}.Launch(agent.LaunchInput{SessionID: "s", Home: "/h", Workspace: "/w", Model: "m", Resume: true})
	require.NoError(t, err)
	require.Equal(t, agent.Launch{
		Argv: []string{"/overwinter/bin/overwinter-runner", "demo-agent", "--session", "s", "--model", "m", "--resume"},
		Key:  "/overwinter/bin/overwinter-runner demo-agent --session s --model m",
		Env:  map[string]string{"HOME": "/h"},
		Dir:  "/w",
		Transcripts: []string{
			"/h/.overwinter-demo/s/transcript.jsonl",
			"/h/.overwinter-demo/s/subagents/*.jsonl",
			"/h/.overwinter-demo/s/allowed",
		},
	}, l)
}

func TestParseKeepsSubagentsWithoutCall(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(t, "r1", everything)
	var subagents []transcript.File
	for _, f := range s.files(t) {
		if _, ok := subagentOf(f.Path); ok {
			subagents = append(subagents, f)
		}
	}
	slices.Reverse(subagents) // files are in any order
	c, err := Adapter{}.Parse(subagents)
	require.NoError(t, err)
	require.Len(t, c.Threads, 3)
	require.Less(t, c.Threads[1].ID, c.Threads[2].ID, "the older one first")
	require.Empty(t, c.Threads[0].Blocks)
	require.NotEmpty(t, c.Threads[1].Blocks)
	require.NotEmpty(t, c.Threads[2].Blocks)
}

func FuzzTranslate(f *testing.F) {
	for _, seed := range []string{
		`{"type":"user","uuid":"u","content":"x"}` + "\n" + `{"type":"start","uuid":"b","kind":"text"}`,
		`{"type":"tool_use","uuid":"t","name":"n","input":{"a":[1,"<"]},"subagent":"s"}` + "\n" + `{"type":"tool_running","uuid":"t"}`,
		`{"type":"tool_result","uuid":"r","toolUseId":"t","output":"\u0000","aborted":true}` + "\n" + `{"type":"result","outcome":"failed"}`,
		`{"type":"question","uuid":"q","kind":"permission","input":[1]}` + "\n" + `{"type":"answered","uuid":"q"}` + "\n" + `{"type":"answered","uuid":"q"}`,
		`{"type":"question","uuid":"q","kind":"question","inquiries":[{"question":"?"}]}` + "\n" + `{"type":"question","uuid":"q","kind":"permission"}` + "\n" + `{"type":"result","outcome":"completed"}`,
		`{"type":"acknowledged"}`, `{"type":"assistant","uuid":"b","kind":"text"}` + "\n" + `{"type":"delta","uuid":"b"}`,
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, restart int) {
		fs := frames(strings.Split(string(data), "\n"))
		want := read(t, "r1", fs, func(int) bool { return false })
		got := read(t, "r1", fs, func(i int) bool { return i == restart })
		require.Empty(t, cmp.Diff(inLog(t, want.Events), inLog(t, got.Events)))
		require.Equal(t, want.End, got.End)
		require.Equal(t, want.Resolved, got.Resolved)
		require.Len(t, got.Questions, len(want.Questions))
		closed := fold(append(got.Events, got.cut...))
		for _, th := range closed.Threads {
			for _, b := range th.Blocks {
				require.False(t, b.Status.Open(), "%+v", b)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"user","uuid":"u","content":"x"}`+"\n"+`{"type":"tool_use","uuid":"t","subagent":"s"}`+"\n"), []byte(`{"type":"start","uuid":"b","kind":"text"}`))
	f.Add([]byte("{}\nnull\n"), []byte("\xff"))
	f.Fuzz(func(t *testing.T, main, sub []byte) {
		c, err := Adapter{}.Parse([]transcript.File{
			{Path: "/h/.overwinter-demo/x/subagents/s.jsonl", Data: sub},
			{Path: "/h/.overwinter-demo/x/transcript.jsonl", Data: main},
			{Path: "/h/other", Data: main},
		})
		require.NoError(t, err)
		for _, th := range c.Threads {
			for _, b := range th.Blocks {
				require.False(t, b.Status.Open(), "%+v", b)
			}
		}
		_, err = json.Marshal(c)
		require.NoError(t, err)
	})
}

// inLog returns events in the form of the log.
func inLog(t *testing.T, events []conversation.Event) []string {
	t.Helper()
	lines := make([]string, len(events))
	for i, e := range events {
		data, err := json.Marshal(e.Data)
		require.NoError(t, err)
		lines[i] = strings.TrimSpace(strings.Join([]string{e.At.Format(time.RFC3339Nano), string(e.Type), e.ConversationID, string(data)}, " "))
	}
	return lines
}
