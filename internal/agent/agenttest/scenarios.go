package agenttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// scenarios are named as Harness.Cannot names them.
var scenarios = []struct {
	name string
	run  func(*testing.T, *bench)
}{
	{"SaysWhatItIs", saysWhatItIs},
	{"AnswersHello", answersHello},
	{"WritesAFileWithATool", writesAFile},
	{"ReportsAFailingTool", reportsAFailingTool},
	{"Thinks", thinks},
	{"CallsASubagent", callsASubagent},
	{"ServesManyPromptsInOneProcess", servesManyPrompts},
	{"IsInterruptedInText", interruptedInText},
	{"IsInterruptedInATool", interruptedInATool},
	{"IsKilledInText", killedInText},
	{"IsKilledInATool", killedInATool},
	{"CountsAsAbortedWhenTheRunnerHadToKillIt", killedForAnAbort},
	{"ResumesFromItsTranscriptAlone", resumes},
	{"RunsAPromptDeliveredTwiceOnce", deliveredTwice},
	{"CutsWhatIsOpen", cuts},
}

func saysWhatItIs(t *testing.T, b *bench) {
	d := b.Adapter.Describe()
	require.Equal(t, b.Adapter.Name(), d.Name)
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.Summary)
	require.NotNil(t, d.Models)
	require.NotNil(t, d.Capabilities)
	launch, err := b.Adapter.Launch(agent.LaunchInput{SessionID: b.sessionID, Home: "/home/agent", Workspace: "/workspace"})
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(launch.Argv[0]), "argv[0] is %s", launch.Argv[0])
	for _, pattern := range launch.Transcripts {
		require.True(t, filepath.IsAbs(pattern), "transcripts are at %s", pattern)
		_, err := filepath.Match(pattern, "")
		require.NoError(t, err)
	}
}

func answersHello(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Positive(t, r.end.Usage.OutputTokens)
	blocks := mainBlocks(t, r)
	require.Equal(t, conversation.UserMessage, blocks[0].Type)
	require.Equal(t, b.Prompts.Hello, blocks[0].Content)
	require.Equal(t, r.context.PromptID, blocks[0].PromptID)
	require.Equal(t, r.context.Author, blocks[0].Author)
	answer := only(t, r, conversation.AssistantText)
	require.Equal(t, conversation.Complete, answer.Status)
	require.NotEmpty(t, answer.Content)
	require.Positive(t, count(r, conversation.EventTextDelta), "text must stream")
	require.Positive(t, count(r, conversation.EventMetadataUpdate), "usage must be told")
	b.check(t)
}

func writesAFile(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.WriteFile)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	data, err := os.ReadFile(filepath.Join(b.workspace, FileName))
	require.NoError(t, err)
	require.Equal(t, FileText, strings.TrimSpace(string(data)))
	use, result := only(t, r, conversation.ToolUse), only(t, r, conversation.ToolResult)
	require.Equal(t, conversation.Success, use.Status)
	require.NotEmpty(t, use.Name)
	require.Equal(t, use.ToolUseID, result.ToolUseID)
	require.False(t, result.IsError)
	require.EqualValues(t, 1, r.end.Usage.ToolCalls)
	b.check(t)
}

func reportsAFailingTool(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.FailingTool)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Equal(t, conversation.Failed, only(t, r, conversation.ToolUse).Status)
	result := only(t, r, conversation.ToolResult)
	require.True(t, result.IsError)
	require.Equal(t, conversation.Failed, result.Status)
	b.check(t)
}

func thinks(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.Thinking)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.NotEmpty(t, only(t, r, conversation.Thinking).Content)
	b.check(t)
}

func callsASubagent(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.Subagent)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	sub := only(t, r, conversation.Subagent)
	require.Equal(t, conversation.Success, sub.Status)
	c := Fold(t, r.events)
	require.Len(t, c.Threads, 2)
	require.Equal(t, sub.SubagentID, c.Threads[1].ID)
	require.NotEmpty(t, c.Threads[1].Blocks)
	b.check(t)
}

func servesManyPrompts(t *testing.T, b *bench) {
	first := b.turn(t, b.Prompts.Hello)
	process := b.process
	second := b.turn(t, b.Prompts.WriteFile)
	require.Same(t, process, b.process)
	require.Equal(t, session.OutcomeCompleted, second.end.Outcome, second.end.Reason)
	require.NotEqual(t, mainBlocks(t, first)[0].ID, mainBlocks(t, second)[0].ID)
	b.check(t)
}

func interruptedInText(t *testing.T, b *bench) {
	r := b.begin(t, b.Prompts.LongText)
	b.until(t, r, "text", isText)
	b.interrupt(t, r)
	b.finish(t, r)
	require.Equal(t, session.OutcomeCancelled, r.end.Outcome)
	require.Equal(t, session.ReasonAborted, r.end.Reason)
	require.Equal(t, conversation.Aborted, only(t, r, conversation.AssistantText).Status)
	after := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, after.end.Outcome, "the agent must stay usable")
	b.check(t)
}

func interruptedInATool(t *testing.T, b *bench) {
	r := b.begin(t, b.Prompts.LongTool)
	b.until(t, r, "a tool", isRunningTool)
	b.interrupt(t, r)
	b.finish(t, r)
	require.Equal(t, session.OutcomeCancelled, r.end.Outcome)
	require.Equal(t, session.ReasonAborted, r.end.Reason)
	require.Equal(t, conversation.Aborted, only(t, r, conversation.ToolUse).Status)
	after := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, after.end.Outcome, "the agent must stay usable")
	b.check(t)
}

func killedInText(t *testing.T, b *bench) {
	b.turn(t, b.Prompts.Hello)
	r := b.begin(t, b.Prompts.LongText)
	b.until(t, r, "text", isText)
	b.kill(t)
	b.finish(t, r)
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	require.Equal(t, session.ReasonAgentCrashed, r.end.Reason)
	text := only(t, r, conversation.AssistantText)
	require.Equal(t, conversation.Aborted, text.Status)
	require.NotEmpty(t, text.Content, "what was streamed is not taken back")
	b.recalls(t)
	b.check(t)
}

func killedInATool(t *testing.T, b *bench) {
	b.turn(t, b.Prompts.Hello)
	r := b.begin(t, b.Prompts.LongTool)
	b.until(t, r, "a tool", isRunningTool)
	b.kill(t)
	b.finish(t, r)
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	require.Equal(t, session.ReasonAgentCrashed, r.end.Reason)
	require.Equal(t, conversation.Aborted, only(t, r, conversation.ToolUse).Status)
	b.recalls(t)
	b.check(t)
}

func killedForAnAbort(t *testing.T, b *bench) {
	r := b.begin(t, b.Prompts.LongTool)
	b.until(t, r, "a tool", isRunningTool)
	b.kill(t)
	b.finish(t, r)
	last := &r.frames[len(r.frames)-1]
	require.Equal(t, agent.Exit, last.Stream)
	report, err := agent.ParseExit(last.Data)
	require.NoError(t, err)
	report.Interrupted = true
	last.Data = encode(report)
	got := b.translate(t, r, func(int) bool { return false })
	require.Equal(t, session.OutcomeCancelled, got.end.Outcome)
	require.Equal(t, session.ReasonAborted, got.end.Reason)
	requireClosed(t, Fold(t, got.events))
}

func resumes(t *testing.T, b *bench) {
	b.turn(t, b.Prompts.Hello)
	b.turn(t, b.Prompts.WriteFile)
	b.close(t)
	b.move(t)
	b.recalls(t)
	b.check(t)
}

// deliveredTwice writes the prompt of one run again: to the process that has done it, and to a new one.
func deliveredTwice(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.WriteFile)
	done := *r
	require.NoError(t, os.Remove(filepath.Join(b.workspace, FileName)))
	for range 2 {
		again := &run{context: r.context}
		b.deliver(t, again, b.Prompts.WriteFile)
		b.finish(t, again)
		require.Equal(t, done.end.Outcome, again.end.Outcome)
		require.NoFileExists(t, filepath.Join(b.workspace, FileName), "the prompt ran again")
		if b.GoesOnWithKnownPrompts {
			b.runs = append(b.runs, again)
			require.NotEmpty(t, only(t, again, conversation.AssistantText).Content)
		} else {
			require.Empty(t, mainBlocks(t, again))
		}
		b.close(t)
	}
	b.check(t)
}

// cuts breaks a run off behind each of its frames, as when its journal is lost.
func cuts(t *testing.T, b *bench) {
	r := b.begin(t, b.Prompts.LongTool)
	b.until(t, r, "a tool", isRunningTool)
	b.interrupt(t, r)
	b.finish(t, r)
	for n := range r.frames {
		tr, err := b.Adapter.NewTranslator(r.context, nil)
		require.NoError(t, err)
		var events []conversation.Event
		for _, f := range r.frames[:n] {
			got, err := tr.Translate(f)
			require.NoError(t, err)
			events = append(events, got.Events...)
		}
		at := time.Now()
		events = append(events, tr.Cut(at)...)
		require.Empty(t, tr.Cut(at), "nothing is open behind a cut")
		requireClosed(t, Fold(t, events))
		requireLifecycles(t, events)
	}
	b.check(t)
}

// recalls asks a new process for what the first one was told.
func (b *bench) recalls(t *testing.T) {
	t.Helper()
	require.Nil(t, b.process, "the process that was told still lives")
	r := b.turn(t, b.Prompts.Recall)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Contains(t, only(t, r, conversation.AssistantText).Content, Word)
}

func isText(e conversation.Event) bool { return e.Type == conversation.EventTextDelta }

func isRunningTool(e conversation.Event) bool {
	d, ok := e.Data.(conversation.BlockUpdate)
	return ok && d.Updates.Status == conversation.Running
}

// mainBlocks are the blocks of a run in the main conversation.
func mainBlocks(t *testing.T, r *run) []conversation.Block {
	t.Helper()
	return Fold(t, r.events).Threads[0].Blocks
}

// only is the one block of that type in the main conversation of a run.
func only(t *testing.T, r *run, kind conversation.BlockType) conversation.Block {
	t.Helper()
	var found []conversation.Block
	for _, b := range mainBlocks(t, r) {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "blocks of type %s", kind)
	return found[0]
}

func count(r *run, kind conversation.EventType) int {
	n := 0
	for _, e := range r.events {
		if e.Type == kind {
			n++
		}
	}
	return n
}
