package agenttest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// place says in which session a scenario runs.
type place int

const (
	alone     place = iota // its own session
	shared                 // the session shared by scenarios that all leave the agent's process running
	asking                 // the session shared by scenarios in which the agent asks before it acts
	restarted              // the session shared by scenarios that end the agent's process and start another
	killed                 // the session shared by scenarios that kill the agent's process
)

type scenario struct {
	name  string
	run   func(*testing.T, *bench)
	in    place
	tools bool // overwinter's tools are offered to the agent
}

// scenarios have the names that Harness.Cannot uses.
var scenarios = []scenario{
	{name: "DescribesItself", run: describesItself, in: alone},
	{name: "AnswersHello", run: answersHello, in: shared},
	{name: "ReceivesNote", run: receivesNote, in: restarted},
	{name: "WritesFileWithTool", run: writesAFile, in: shared},
	{name: "ReportsFailingTool", run: reportsAFailingTool, in: shared},
	{name: "Thinks", run: thinks, in: shared},
	{name: "CallsSubagent", run: callsASubagent, in: shared},
	{name: "ServesManyPromptsInOneProcess", run: servesManyPrompts, in: shared},
	{name: "InterruptedInText", run: interruptedInText, in: shared},
	{name: "InterruptedInTool", run: interruptedInATool, in: shared},
	{name: "KilledInText", run: killedInText, in: killed},
	{name: "KilledInTool", run: killedInATool, in: killed},
	{name: "AbortedIfKilledByRunner", run: killedForAnAbort, in: killed},
	{name: "ResumesFromTranscript", run: resumes, in: restarted},
	{name: "RepeatedDeliveryRunsOnce", run: deliveredTwice, in: restarted},
	{name: "CutEndsOpenBlocks", run: cuts, in: shared},
	{name: "RevertsToBeforePrompt", run: revertsToBeforePrompt, in: restarted},
	{name: "ContinuesInFork", run: continuesInFork, in: restarted},
	{name: "CallsToolsInParallel", run: callsToolsInParallel, in: shared},
	{name: "RunsAllowedTool", run: runsAllowedTool, in: asking},
	{name: "SkipsDeniedTool", run: skipsDeniedTool, in: asking},
	{name: "AsksUser", run: asksItsUser, in: asking},
	{name: "CallsOverwinterTool", run: callsATool, in: shared, tools: true},
	{name: "OverwinterToolsNeedNoPermission", run: callsAToolWithoutAsking, in: asking, tools: true},
	{name: "AcceptsPromptDuringTurn", run: acceptsPrompt, in: shared},
	{name: "KeepsPromptAtTurnEnd", run: keepsLatePrompt, in: shared},
	{name: "DiesWithPromptForTurn", run: diesWithAPrompt, in: killed},
	{name: "ReportsModelRefusal", run: reportsModelRefusal, in: shared},
	{name: "ReportsRefusedKey", run: reportsRefusedKey, in: shared},
	{name: "FailsAfterModelTimeout", run: failsAfterModelTimeout, in: shared},
}

func describesItself(t *testing.T, b *bench) {
	d := b.Adapter.Describe()
	require.Equal(t, b.Adapter.Name(), d.Name)
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.Summary)
	require.NotNil(t, d.Models)
	require.NotNil(t, d.Capabilities)
	_, steers := b.Adapter.(agent.Steerer)
	require.Equal(t, steers, slices.Contains(d.Capabilities, agent.CapabilitySteer))
	launch, err := b.Adapter.Launch(agent.LaunchInput{SessionID: b.sessionID, Home: "/home/agent", Workspace: "/workspace"})
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(launch.Argv[0]), "argv[0] is %s", launch.Argv[0])
	for _, pattern := range launch.Transcripts {
		require.True(t, filepath.IsAbs(pattern), "transcripts are at %s", pattern)
		_, err := filepath.Match(pattern, "")
		require.NoError(t, err)
	}
}

// receivesNote sends a prompt with a note: the turn is the same as without it, and neither the
// conversation nor the parsed transcript shows the note as written by a person.
func receivesNote(t *testing.T, b *bench) {
	b.note = "The file lost.txt was not restored."
	answersHello(t, b)
	b.note = ""
	b.remembers(t)
	b.check(t)
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
	require.Positive(t, count(r, conversation.EventMetadataUpdate), "usage must be reported")
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
	if viewer, ok := b.Adapter.(agent.Viewer); ok {
		require.NotEmpty(t, viewer.Tool(use.Name, use.Input).Kind)
		b.viewsAFile(t, onlyOf(t, Fold(t, b.viewed(r.events)).Threads[0].Blocks, conversation.ToolUse).Tool)
	}
	b.check(t)
}

// viewsAFile checks the view of the call that wrote the file: an edit with its text, or a shell
// command.
func (b *bench) viewsAFile(t *testing.T, v conversation.Tool) {
	t.Helper()
	require.NotEmpty(t, v.Title)
	if v.Kind == conversation.ToolExecute {
		require.Contains(t, v.Title, FileName)
		return
	}
	require.Equal(t, conversation.ToolEdit, v.Kind)
	require.Equal(t, FileName, filepath.Base(v.Locations[0].Path))
	if len(v.Diff) > 0 { // an agent may show the call without its text
		require.Contains(t, v.Diff[0].NewText+v.Diff[0].Patch, FileText)
	}
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
	require.NotEmpty(t, text.Content, "streamed text is not removed")
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
	b.killedInTool = r
}

// killedForAnAbort translates the frames of a run that was killed in a tool as if the runner had
// killed it.
func killedForAnAbort(t *testing.T, b *bench) {
	r := b.killedInTool
	if r == nil {
		r = b.begin(t, b.Prompts.LongTool)
		b.until(t, r, "a tool", isRunningTool)
		b.kill(t)
		b.finish(t, r)
	}
	interrupted := *r
	interrupted.frames = slices.Clone(r.frames)
	last := &interrupted.frames[len(r.frames)-1]
	require.Equal(t, agent.Exit, last.Stream)
	report, err := agent.ParseExit(last.Data)
	require.NoError(t, err)
	report.Interrupted = true
	last.Data = encode(report)
	got := b.translate(t, &interrupted, func(int) bool { return false })
	require.Equal(t, session.OutcomeCancelled, got.end.Outcome)
	require.Equal(t, session.ReasonAborted, got.end.Reason)
	requireClosed(t, Fold(t, got.events))
	b.check(t)
}

func resumes(t *testing.T, b *bench) {
	b.turn(t, b.Prompts.Hello)
	b.turn(t, b.Prompts.WriteFile)
	b.close(t)
	b.move(t)
	b.recalls(t)
	b.check(t)
}

// deliveredTwice delivers the prompt of one run again, to the process that has executed it and to a
// new one.
func deliveredTwice(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.WriteFile)
	done := *r
	require.NoError(t, os.Remove(filepath.Join(b.workspace, FileName)))
	for _, process := range []string{"same", "new"} {
		if process == "new" {
			b.close(t)
		}
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
	}
	b.check(t)
}

// cuts ends a run after each of its frames, as if its journal were lost.
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
		require.Empty(t, tr.Cut(at), "nothing is open after a cut")
		requireClosed(t, Fold(t, events))
		requireLifecycles(t, events)
	}
	b.check(t)
}

func callsToolsInParallel(t *testing.T, b *bench) {
	r := b.turn(t, b.Prompts.Parallel)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	results := map[string]conversation.Block{}
	for _, result := range blocksOf(t, r, conversation.ToolResult) {
		require.NotContains(t, results, result.ToolUseID)
		results[result.ToolUseID] = result
	}
	uses := blocksOf(t, r, conversation.ToolUse)
	require.Len(t, uses, 2)
	for _, use := range uses {
		require.Equal(t, conversation.Success, use.Status)
		require.Contains(t, results, use.ToolUseID)
		require.False(t, results[use.ToolUseID].IsError)
	}
	require.NotEqual(t, results[uses[0].ToolUseID].ID, results[uses[1].ToolUseID].ID)
	require.EqualValues(t, 2, r.end.Usage.ToolCalls)
	b.check(t)
}

// asks makes the agent ask before it acts. The file of Prompts.Guarded does not exist.
func (b *bench) asks(t *testing.T) {
	t.Helper()
	b.permissions = permission.Rules{Default: permission.Ask}
	require.NoError(t, os.RemoveAll(filepath.Join(b.workspace, FileName)))
}

func runsAllowedTool(t *testing.T, b *bench) {
	b.asks(t)
	b.answer = func(agent.Question) agent.Answer {
		require.NoFileExists(t, filepath.Join(b.workspace, FileName), "it did not wait for the answer")
		return agent.Answer{Decision: agent.DecisionOnce}
	}
	r := b.turn(t, b.Prompts.Guarded)
	b.asked(t, r, agent.Permission)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	data, err := os.ReadFile(filepath.Join(b.workspace, FileName))
	require.NoError(t, err)
	require.Equal(t, FileText, strings.TrimSpace(string(data)))
	require.Equal(t, conversation.Success, only(t, r, conversation.ToolUse).Status)
	require.False(t, only(t, r, conversation.ToolResult).IsError)
	b.check(t)
}

func skipsDeniedTool(t *testing.T, b *bench) {
	b.asks(t)
	b.answer = func(agent.Question) agent.Answer {
		return agent.Answer{Decision: agent.DecisionReject, Message: refusal}
	}
	r := b.turn(t, b.Prompts.Guarded)
	q := b.asked(t, r, agent.Permission)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.NoFileExists(t, filepath.Join(b.workspace, FileName))
	use := only(t, r, conversation.ToolUse)
	require.Equal(t, conversation.Failed, use.Status)
	require.Equal(t, use.Name, q.ToolName, "a policy by the name of the tool must meet its questions")
	require.True(t, only(t, r, conversation.ToolResult).IsError)
	b.check(t)
}

func asksItsUser(t *testing.T, b *bench) {
	b.asks(t)
	b.answer = func(q agent.Question) agent.Answer {
		a := agent.Answer{Decision: agent.DecisionOnce, Answers: map[string]question.Words{}}
		for _, item := range q.Inquiries {
			a.Answers[item.Question] = question.Text(Choice)
		}
		return a
	}
	r := b.turn(t, b.Prompts.Question)
	q := b.asked(t, r, agent.Inquiry)
	require.Len(t, q.Inquiries, 1)
	require.True(t, slices.ContainsFunc(q.Inquiries[0].Options, func(o agent.InquiryOption) bool { return o.Label == Choice }))
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Contains(t, string(only(t, r, conversation.ToolResult).Output), Choice, "the answer must be sent to the agent")
	b.check(t)
}

// asked returns the one question of a run, which must no longer wait.
func (b *bench) asked(t *testing.T, r *run, kind agent.QuestionKind) agent.Question {
	t.Helper()
	require.Len(t, r.questions, 1)
	q := r.questions[0]
	require.Equal(t, kind, q.Kind)
	require.NotEmpty(t, q.Title)
	require.NotEmpty(t, q.ToolName)
	require.Equal(t, only(t, r, conversation.ToolUse).ID, q.ToolUseID)
	require.Equal(t, []string{q.ID}, r.resolved, "a question must be resolved, once")
	return q
}

func reportsModelRefusal(t *testing.T, b *bench) {
	require.Nil(t, b.fails(t, b.Prompts.Refused).end.Unauthorized)
}

// reportsRefusedKey runs prompts with a key that the model API does not accept.
func reportsRefusedKey(t *testing.T, b *bench) {
	for _, content := range []string{b.Prompts.Unauthorized, b.Prompts.Forbidden} {
		require.NotNil(t, b.fails(t, content).end.Unauthorized)
	}
}

func failsAfterModelTimeout(t *testing.T, b *bench) {
	b.fails(t, b.Prompts.Endless)
}

// fails runs a prompt that fails with a reported reason, and then a prompt that succeeds.
func (b *bench) fails(t *testing.T, content string) *run {
	t.Helper()
	r := b.turn(t, content)
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	require.NotEmpty(t, r.end.Reason)
	require.NotEqual(t, session.ReasonAgentCrashed, r.end.Reason)
	require.Empty(t, blocksOf(t, r, conversation.AssistantText))
	require.NotEmpty(t, blocksOf(t, r, conversation.System), "the conversation must show the failure")
	after := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, after.end.Outcome, "the agent must stay usable: %s", after.end.Reason)
	b.check(t)
	return r
}

// recalls asks a new process for the prompts that the first one received.
func (b *bench) recalls(t *testing.T) {
	t.Helper()
	require.Nil(t, b.process, "the process that received it still lives")
	b.remembers(t)
}

func isText(e conversation.Event) bool { return e.Type == conversation.EventTextDelta }

func isRunningTool(e conversation.Event) bool {
	d, ok := e.Data.(conversation.BlockUpdate)
	return ok && d.Updates.Status == conversation.Running
}

// mainBlocks returns the blocks of a run in the main conversation.
func mainBlocks(t *testing.T, r *run) []conversation.Block {
	t.Helper()
	return Fold(t, r.events).Threads[0].Blocks
}

// onlyOf returns the only block of a type.
func onlyOf(t *testing.T, blocks []conversation.Block, kind conversation.BlockType) conversation.Block {
	t.Helper()
	i := slices.IndexFunc(blocks, func(b conversation.Block) bool { return b.Type == kind })
	require.GreaterOrEqual(t, i, 0)
	return blocks[i]
}

// only returns the only block of a type in the main conversation of a run.
func only(t *testing.T, r *run, kind conversation.BlockType) conversation.Block {
	t.Helper()
	found := blocksOf(t, r, kind)
	require.Len(t, found, 1, "blocks of type %s", kind)
	return found[0]
}

// blocksOf returns the blocks of a type in the main conversation of a run.
func blocksOf(t *testing.T, r *run, kind conversation.BlockType) []conversation.Block {
	t.Helper()
	var found []conversation.Block
	for _, b := range mainBlocks(t, r) {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	return found
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

// revertsToBeforePrompt reverts the agent to its state before one of its prompts: its transcript has the
// earlier turns unchanged, and a new process knows nothing of the later ones.
func revertsToBeforePrompt(t *testing.T, b *bench) {
	reverter, ok := b.Adapter.(agent.Reverter)
	if !ok {
		require.NotContains(t, b.Adapter.Describe().Capabilities, "revert")
		t.Skip(b.Adapter.Name() + " does not declare revert")
	}
	require.Contains(t, b.Adapter.Describe().Capabilities, "revert")
	first := b.turn(t, b.Prompts.Hello)
	prompts := b.remembers(t)
	kept := len(b.runs)
	second := b.turn(t, b.Prompts.WriteFile)
	b.turn(t, b.Prompts.Subagent)
	b.close(t)
	before := b.transcripts(t)
	_, err := reverter.Revert(before, session.NewID(session.RunPrefix))
	require.Error(t, err, "a run that is not in it")
	reverted, err := reverter.Revert(before, second.context.RunID)
	require.NoError(t, err)
	again, err := reverter.Revert(before, second.context.RunID)
	require.NoError(t, err)
	require.Equal(t, reverted, again, "it is pure")
	for _, f := range before {
		require.NoError(t, os.Remove(f.Path))
	}
	for _, name := range reverted.Remove {
		require.NoError(t, os.RemoveAll(name))
	}
	for _, f := range reverted.Files {
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	b.runs = b.runs[:kept]
	require.Equal(t, prompts+1, b.remembers(t), "the prompts before, and the one that asks")
	require.NotEmpty(t, mainBlocks(t, first))
	b.check(t)
}
