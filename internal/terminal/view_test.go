package terminal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// eventOf returns an event of the main conversation.
func eventOf(t *testing.T, kind string, data any) event.JSON {
	t.Helper()
	raw, err := json.Marshal(data)
	require.NoError(t, err)
	return event.JSON{Seq: 1, Type: kind, RunID: "run_1", ConversationID: conversation.Main, Data: raw}
}

func start(t *testing.T, b conversation.Block) event.JSON {
	t.Helper()
	return eventOf(t, "block_start", conversation.BlockStart{Block: b})
}

func complete(t *testing.T, b conversation.Block) event.JSON {
	t.Helper()
	return eventOf(t, "block_complete", conversation.BlockComplete{Block: b})
}

func delta(t *testing.T, id, text string) event.JSON {
	t.Helper()
	return eventOf(t, "text_delta", conversation.TextDelta{BlockID: id, Delta: text})
}

// in moves an event to another conversation.
func in(id string, e event.JSON) event.JSON {
	e.ConversationID = id
	return e
}

func text(id, content string, status conversation.BlockStatus) conversation.Block {
	return conversation.Block{ID: id, Type: conversation.AssistantText, Status: status, Content: content}
}

func tool(id string, status conversation.BlockStatus) conversation.Block {
	return conversation.Block{
		ID: id, Type: conversation.ToolUse, Status: status, Name: "shell", ToolUseID: id, Input: json.RawMessage(`{"command":"run ` + id + `"}`),
	}
}

func output(of, text string) conversation.Block {
	raw, _ := json.Marshal(text) //nolint:errchkjson // a string
	return conversation.Block{ID: "r-" + of, Type: conversation.ToolResult, Status: conversation.Success, ToolUseID: of, Output: raw}
}

func subagent(id string, status conversation.BlockStatus, conversationID string) conversation.Block {
	return conversation.Block{ID: id, Type: conversation.Subagent, Status: status, Name: "reader", SubagentID: conversationID}
}

// rewriting are the options of a terminal of 40 columns without colours, so that its output is easy
// to read in a test.
func rewriting() terminal.Options {
	return terminal.Options{Rewrite: true, Width: func() int { return 40 }}
}

func TestDeadlinesAreSentences(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for kind, want := range map[deadline.Kind]string{
		deadline.Sleep:  "session hibernates in 1m0s unless something happens first\n",
		deadline.Expiry: "session moves to a new sandbox in 1m0s unless something happens first\n",
		"tea":           "session reaches its tea deadline in 1m0s unless something happens first\n",
	} {
		var out bytes.Buffer
		e := eventOf(t, "deadline", event.DeadlineData{Kind: kind, At: resource.Time(at.Add(time.Minute))})
		e.At = resource.Time(at)
		require.NoError(t, terminal.New(&out, terminal.Options{}).Event(e))
		require.Equal(t, want, out.String())
	}
}

func TestTextIsShownAsItComes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := terminal.New(&out, terminal.Options{})
	require.NoError(t, v.Event(start(t, text("a", "", conversation.Streaming))))
	for _, piece := range []string{"\n\nHel", "lo ", "there\n", "\nand", "\n\n"} {
		before := out.Len()
		require.NoError(t, v.Event(delta(t, "a", piece)))
		require.Contains(t, out.String()[before:], strings.TrimSpace(piece))
	}
	require.Equal(t, "agent: Hello there\n\n  and", out.String(), "empty lines at its ends are left out")
	require.NoError(t, v.Event(complete(t, text("a", "\n\nHello there\n\nand\n\n", conversation.Complete))))
	require.NoError(t, v.Close())
	require.Equal(t, "agent: Hello there\n\n  and\n", out.String())
}

func TestCallChangesItsStateInPlace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := terminal.New(&out, rewriting())
	var states []string
	for _, e := range []event.JSON{
		start(t, tool("1", conversation.Pending)), start(t, tool("2", conversation.Pending)),
		eventOf(t, "block_update", conversation.BlockUpdate{BlockID: "1", Updates: conversation.Updates{Status: conversation.Running}}),
		eventOf(t, "block_update", conversation.BlockUpdate{BlockID: "2", Updates: conversation.Updates{Status: conversation.Running}}),
		complete(t, tool("2", conversation.Failed)), complete(t, output("2", "no")), complete(t, tool("1", conversation.Success)),
	} {
		require.NoError(t, v.Event(e))
		states = append(states, emulate(t, 40, out.String()))
	}
	require.Equal(t, []string{
		"○ shell  run 1\n",
		"○ shell  run 1\n○ shell  run 2\n",
		"◐ shell  run 1\n○ shell  run 2\n",
		"◐ shell  run 1\n◐ shell  run 2\n",
		"✗ shell  run 2\n◐ shell  run 1\n",
		"✗ shell  run 2\n  no\n◐ shell  run 1\n",
		"✗ shell  run 2\n  no\n✓ shell  run 1\n",
	}, states)
}

func TestWordsAreNotSplit(t *testing.T) {
	t.Parallel()
	words := "The quick brown fox jumps over the lazy dog, 狐狸跳过懒狗 again and again, until averyveryveryverylongwordthatfitsnowhere ends it. "
	for size := 1; size < 9; size++ {
		events := []event.JSON{start(t, text("a", "", conversation.Streaming))}
		for rest := []rune(words); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			events = append(events, delta(t, "a", string(rest[:min(size, len(rest))])))
		}
		got := emulate(t, 40, show(t, append(events, complete(t, text("a", words, conversation.Complete))), rewriting()))
		require.Equal(t, "The quick brown fox jumps over the lazy\ndog, 狐狸跳过懒狗 again and again,\n"+
			"until\naveryveryveryverylongwordthatfitsnowher\ne ends it.\n", got, size)
	}
}

func TestInterleavedEventsDoNotSplitText(t *testing.T) {
	t.Parallel()
	events := []event.JSON{
		start(t, text("a", "", conversation.Streaming)), delta(t, "a", "one "),
		eventOf(t, "title", conversation.Title{Title: "T"}),
		delta(t, "a", "two\n"),
		in("sub", start(t, text("b", "", conversation.Streaming))), in("sub", delta(t, "b", "from below")),
		eventOf(t, "title", conversation.Title{Title: "U"}),
		delta(t, "a", "three"),
		in("sub", complete(t, text("b", "from below", conversation.Complete))),
		complete(t, text("a", "one two\nthree", conversation.Complete)),
	}
	require.Equal(t, "agent: one \ntitle: T\n  two\ntitle: U\n  three\n[sub] agent: from below\n", show(t, events, terminal.Options{}))
	require.Equal(t, "one\ntitle: T\ntwo\ntitle: U\nthree\n╭ sub\n│ from below\n", emulate(t, 40, show(t, events, rewriting())))
}

func TestReplacedTextIsShownAgain(t *testing.T) {
	t.Parallel()
	require.Equal(t, "agent: one t\nagent: one and two\n", show(t, []event.JSON{
		start(t, text("a", "", conversation.Streaming)), delta(t, "a", "one t"), complete(t, text("a", "one and two", conversation.Complete)),
	}, terminal.Options{}))
	require.Equal(t, "agent: one\nremoved: 1 blocks\nagent: two\n", show(t, []event.JSON{
		start(t, text("a", "", conversation.Streaming)), delta(t, "a", "one"),
		eventOf(t, "block_removed", conversation.BlockRemoved{BlockID: "a"}),
		delta(t, "a", "ghost"),
		complete(t, text("b", "two", conversation.Complete)),
	}, terminal.Options{}))
}

// TestAbortedTextEnds covers a long text, whose end is only its status.
func TestAbortedTextEnds(t *testing.T) {
	t.Parallel()
	require.Equal(t, "agent: one two (aborted)\nagent: three\n", show(t, []event.JSON{
		start(t, text("a", "", conversation.Streaming)), delta(t, "a", "one "), delta(t, "a", "two"),
		eventOf(t, "block_update", conversation.BlockUpdate{BlockID: "a", Updates: conversation.Updates{Status: conversation.Aborted}}),
		start(t, text("b", "", conversation.Streaming)), delta(t, "b", "three"), complete(t, text("b", "three", conversation.Complete)),
	}, terminal.Options{}))
}

func TestLateReaderSeesCompletedBlocks(t *testing.T) {
	t.Parallel()
	require.Equal(t, "agent: whole\ntool shell success: run 1\n  out\nresult\n  of what?\nprompt: hi\nturn completed\n", show(t, []event.JSON{
		delta(t, "a", "ole"), complete(t, text("a", "whole", conversation.Complete)),
		eventOf(t, "block_update", conversation.BlockUpdate{BlockID: "1", Updates: conversation.Updates{Status: conversation.Running}}),
		complete(t, tool("1", conversation.Success)), complete(t, output("1", "out")), complete(t, output("unseen", "of what?")),
		eventOf(t, "turn_start", event.TurnStartData{RunID: "run_1", PromptID: "p", Attempt: 1}),
		complete(t, conversation.Block{ID: "u", Type: conversation.UserMessage, Status: conversation.Complete, Content: "hi", PromptID: "p"}),
		eventOf(t, "turn_end", event.TurnEndData{RunID: "run_1", PromptID: "p", Outcome: session.OutcomeCompleted}),
	}, terminal.Options{}))
}

func TestResultsAreShortened(t *testing.T) {
	t.Parallel()
	var long strings.Builder
	for i := range 20 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	events := []event.JSON{complete(t, tool("1", conversation.Success)), complete(t, output("1", long.String()))}
	short := show(t, events, terminal.Options{})
	require.Contains(t, short, "  line 5\n  … 14 more lines\n")
	require.Contains(t, show(t, events, terminal.Options{Full: true}), "  line 19\n")
	require.Contains(t, show(t, []event.JSON{complete(t, output("1", "10%\r50%\r100%\r\ndone"))}, terminal.Options{}), "\n  100%\n  done\n")

	var files []event.JSON
	for i := range 20 {
		files = append(files, eventOf(t, "file", event.FileData{Path: fmt.Sprint(i), Change: workspacefile.Created, Size: 1500}))
	}
	files = append(files, eventOf(t, "file", event.FileData{Path: "gone", Change: workspacefile.Deleted}))
	got := show(t, files, terminal.Options{})
	require.Contains(t, got, "file created: 7 (1.5 kB)\nand 13 more files\n")
	require.NotContains(t, got, "gone")
	require.Contains(t, show(t, files, terminal.Options{Full: true}), "file deleted: gone\n")
}

func TestSubagentResultIsItsText(t *testing.T) {
	t.Parallel()
	early := []event.JSON{
		start(t, subagent("s", conversation.Pending, "")),
		eventOf(t, "block_update", conversation.BlockUpdate{BlockID: "s", Updates: conversation.Updates{Status: conversation.Running, SubagentID: "sub"}}),
		complete(t, output("s", "begun in the background")), // before it is over
	}
	done := complete(t, subagent("s", conversation.Success, "sub"))
	said := in("sub", complete(t, text("x", "it is so", conversation.Complete)))
	require.Equal(t, "subagent reader running\n[reader] agent: it is so\nsubagent reader success\n",
		show(t, append(early, said, done), terminal.Options{}))
	require.Equal(t, "subagent reader running\nsubagent reader success\n  begun in the background\n",
		show(t, append(early[:3:3], done), terminal.Options{}), "where it said nothing the result is all there is")
}

func TestResumeContinuesWithoutGapOrRepeat(t *testing.T) {
	t.Parallel()
	for _, log := range []string{"testdata/demo.ndjson", "testdata/claude.ndjson"} {
		events := slices.DeleteFunc(readLog(t, log), func(e event.JSON) bool { return e.Type == event.TypePrompt }) // one comes in the middle of a text
		whole := show(t, events, terminal.Options{})
		for cut := range events {
			var folder conversation.Folder
			for _, e := range events[:cut] {
				require.NoError(t, folder.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
			}
			var out bytes.Buffer
			v := terminal.New(&out, terminal.Options{})
			require.NoError(t, v.Resume(folder.Conversation(), 1000))
			for _, e := range events[cut:] {
				require.NoError(t, v.Event(e))
			}
			require.NoError(t, v.Close())
			// The agent's text appears once, wherever the cut is.
			require.Equal(t, agentLines(whole), agentLines(out.String()), "%s cut at %d", log, cut)
		}
	}
}

// agentLines returns the lines of the agent's text.
func agentLines(shown string) []string {
	var out []string
	for line := range strings.Lines(shown) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "agent: "); ok {
			out = append(out, strings.TrimSuffix(strings.TrimSpace(said), " (aborted)"))
		}
	}
	return out
}

func TestResumeShowsLastBlocks(t *testing.T) {
	t.Parallel()
	blocks := []conversation.Block{text("1", "one", conversation.Complete), text("2", "two", conversation.Complete), text("3", "thr", conversation.Streaming)}
	c := conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: blocks}}}
	var out bytes.Buffer
	v := terminal.New(&out, terminal.Options{})
	require.NoError(t, v.Resume(c, 2))
	require.NoError(t, v.Event(delta(t, "3", "ee")))
	require.Equal(t, "… 1 blocks before\nagent: two\nagent: three", out.String())
}

func TestTypedLineLeavesNoTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := terminal.New(&out, rewriting())
	require.NoError(t, v.Event(start(t, tool("1", conversation.Running))))
	require.NoError(t, v.Prompt("> "))
	require.Equal(t, "◐ shell  run 1\n>\n", emulate(t, 40, out.String()))
	typed := strings.Repeat("words ", 12)
	out.WriteString(typed + "\r\n") // as the terminal shows it
	require.NoError(t, v.Entered(typed))
	require.NoError(t, v.Notice("taken"))
	require.Equal(t, "taken\n◐ shell  run 1\n>\n", emulate(t, 40, out.String()))
	require.NoError(t, v.Close())
	require.Equal(t, "taken\n", emulate(t, 40, out.String()))
}

// TestTypedTextStaysApartFromStreamedText types a letter between all pieces of a streaming text.
func TestTypedTextStaysApartFromStreamedText(t *testing.T) {
	t.Parallel()
	const said = "The quick brown fox jumps over the lazy dog.\nAnd then it sleeps until the next morning, as foxes do in winter.\n\nThe end"
	stream := func(types bool) (screens []string, last string) {
		var out bytes.Buffer
		v := terminal.New(&out, rewriting())
		if types {
			v.OwnInput()
		}
		require.NoError(t, v.Prompt("> "))
		require.NoError(t, v.Event(start(t, tool("1", conversation.Running))))
		require.NoError(t, v.Event(start(t, text("a", "", conversation.Streaming))))
		typed := ""
		for i := 0; i < len(said); i += 3 {
			require.NoError(t, v.Event(delta(t, "a", said[i:min(i+3, len(said))])))
			if !types {
				continue
			}
			typed += string(rune('a' + i%26))
			require.NoError(t, v.Typing(typed))
			if i%60 == 0 {
				require.NoError(t, v.Redraw())
			}
			rows := strings.Split(strings.TrimRight(emulate(t, 40, out.String()), "\n"), "\n")
			tail := typed
			if len(tail) > 37 {
				tail = "…" + tail[len(tail)-36:]
			}
			require.Equal(t, "> "+tail, rows[len(rows)-1])
			require.Equal(t, "◐ shell  run 1", rows[len(rows)-2], "running calls stay visible, too")
			screens = append(screens, strings.Join(rows[:len(rows)-2], "\n"))
			if i%45 == 0 {
				require.NoError(t, v.Entered(typed))
				typed = ""
			}
		}
		require.NoError(t, v.Typing(""))
		require.NoError(t, v.Event(complete(t, text("a", said, conversation.Complete))))
		require.NoError(t, v.Notice("over"))
		require.NoError(t, v.Close())
		return screens, emulate(t, 40, out.String())
	}
	_, want := stream(false)
	screens, got := stream(true)
	require.Equal(t, want, got)
	letters := func(screen string) string { return strings.Join(strings.Fields(screen), "") } // a word may move to the next line
	for _, s := range screens {
		require.True(t, strings.HasPrefix(letters(want), letters(s)), s)
	}
}

func TestUnknownAndBrokenEvents(t *testing.T) {
	t.Parallel()
	require.Equal(t, "weather {\"sky\":\"clear\\u001b[2J\"}\nposter\nthe session has ended\n", show(t, []event.JSON{
		eventOf(t, "weather", map[string]string{"sky": "clear\x1b[2J"}),
		complete(t, conversation.Block{ID: "x", Type: "poster", Status: conversation.Complete}),
		{Type: "end", Data: json.RawMessage(`{}`)},
	}, terminal.Options{}))
	var out bytes.Buffer
	v := terminal.New(&out, terminal.Options{})
	require.ErrorContains(t, v.Event(event.JSON{Seq: 7, Type: "status", Data: json.RawMessage(`[]`)}), "show event 7, status")
	require.Empty(t, out.String())
}

func TestCommandsAndSettingsAreSentences(t *testing.T) {
	t.Parallel()
	command := func(c resource.CommandJSON) event.JSON { return eventOf(t, "command", event.CommandData{Command: c}) }
	idle, profile := resource.Duration(90*time.Second), "prf_1@2"
	require.Equal(t, "restart requested, now\nhibernate requested\nhibernate superseded (session_in_error)\nsync done\n"+
		"settings: model m, permissions default, idle timeout 1m30s, profile prf_1@2, workspace https://h/r main, metadata {\"a\":\"<&>\"}\n", show(t, []event.JSON{
		command(resource.CommandJSON{Kind: session.CommandRestart, Status: session.CommandPending, Force: true}),
		command(resource.CommandJSON{Kind: session.CommandHibernate, Status: session.CommandPending}),
		command(resource.CommandJSON{Kind: session.CommandHibernate, Status: session.CommandSuperseded, Reason: "session_in_error"}),
		command(resource.CommandJSON{Kind: session.CommandRestart, Status: session.CommandApplied}),
		command(resource.CommandJSON{Kind: session.CommandSync, Status: session.CommandApplied}),
		eventOf(t, "settings", event.SettingsData{
			Options: &session.Options{Model: "m"}, IdleTimeout: &idle, Profile: &profile,
			Workspace: &session.Workspace{RepoURL: "https://h/r", Ref: "main"}, Metadata: json.RawMessage(`{"a":"<&>"}`),
		}),
	}, terminal.Options{}))
}

// TestToolsOfAllAgentsAreReadable uses inputs and results of real agents.
func TestToolsOfAllAgentsAreReadable(t *testing.T) {
	t.Parallel()
	failed := tool("t", conversation.Failed)
	failed.Name, failed.Input = "run_shell_command", json.RawMessage(`{"title":"touch a \u0026\u0026 echo b"}`)
	other := tool("o", conversation.Success)
	other.Input = json.RawMessage(`{"from":"a\u003cb","count":12345678901234567890}`)
	require.Equal(t, "tool run_shell_command failed: touch a && echo b\n  was rejected by a person\ntool shell success: {\"count\":12345678901234567890,\"from\":\"a<b\"}\n", strings.ReplaceAll(show(t, []event.JSON{
		complete(t, failed),
		complete(t, conversation.Block{ID: "r", Type: conversation.ToolResult, ToolUseID: "t", IsError: true, Status: conversation.Complete, Output: json.RawMessage(`{"error":"was rejected by a person"}`)}),
		complete(t, other),
	}, terminal.Options{}), string(conversation.Failed)+":", "failed:"))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestBrokenTerminalIsReported(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, terminal.New(brokenWriter{}, terminal.Options{}).Notice("x"), "write to the terminal: gone")
}

// FuzzNothingCommandsTheTerminal puts hostile text wherever an event has room for text.
func FuzzNothingCommandsTheTerminal(f *testing.F) {
	f.Add("\x1b[2J\x1b]0;title\x07", uint8(40))
	f.Add("\u009b2J\u202e back \u2066", uint8(1))
	f.Add("a\rb\bc\x7f\x00\t\n\n wide 狐狸 \u0301", uint8(21))
	f.Add(`{"command":"\u001b[31m"}`, uint8(200))
	f.Fuzz(func(t *testing.T, hostile string, width uint8) {
		raw, err := json.Marshal(hostile)
		require.NoError(t, err)
		block := conversation.Block{
			ID: "b", Status: conversation.Running, Name: hostile, Content: hostile, ToolUseID: "b", Input: raw, Output: raw,
			Subtype: hostile, Message: hostile, SubagentID: hostile,
		}
		asked := resource.QuestionJSON{ID: hostile, Kind: question.Permission, Title: hostile, ToolName: hostile, Input: raw, Questions: []resource.QuestionItem{
			{Question: hostile, Options: []resource.QuestionOption{{Label: hostile, Description: hostile}}},
		}}
		events := []event.JSON{
			eventOf(t, "status", event.StatusData{Status: session.State(hostile), Reason: hostile, Receipt: &resource.ReceiptJSON{Kind: receipt.Kind(hostile), Missing: []string{hostile}}}),
			eventOf(t, "prompt", event.PromptData{Prompt: event.PromptChange{PromptJSON: resource.PromptJSON{ID: "p", Status: session.PromptQueued}, Content: hostile}}),
			eventOf(t, "turn_start", event.TurnStartData{RunID: "run_1", PromptID: "p"}),
			eventOf(t, "prompt", event.PromptData{Prompt: event.PromptChange{PromptJSON: resource.PromptJSON{ID: "q", Status: session.PromptQueued}, Content: hostile}}),
			eventOf(t, "prompt", event.PromptData{Prompt: event.PromptChange{PromptJSON: resource.PromptJSON{ID: "q", Status: session.PromptStatus(hostile), Reason: hostile}}}),
			eventOf(t, "metadata_update", conversation.MetadataUpdate{CostUSD: new(1.0), Model: hostile}),
			eventOf(t, "question", event.QuestionData{Question: asked}),
			eventOf(t, "question_resolved", event.QuestionResolvedData{Answer: question.Decision(hostile), Message: hostile}),
			eventOf(t, "question_resolved", event.QuestionResolvedData{Answers: question.TextEach(map[string]string{hostile: hostile}), Reason: hostile}),
			eventOf(t, "file", event.FileData{Path: hostile, Change: workspacefile.ChangeKind(hostile)}),
			eventOf(t, "title", conversation.Title{Title: hostile}),
			eventOf(t, "error", conversation.Problem{Code: hostile, Message: hostile}),
			eventOf(t, hostile, hostile),
		}
		for i, kind := range []conversation.BlockType{
			conversation.Subagent, conversation.AssistantText, conversation.Thinking, conversation.ToolUse, conversation.ToolResult,
			conversation.System, conversation.UserMessage, conversation.BlockType(hostile),
		} {
			for _, in := range []string{conversation.Main, hostile} {
				b := block
				b.Type, b.ID = kind, fmt.Sprint(i, in)
				for _, e := range []event.JSON{
					start(t, b), delta(t, b.ID, hostile),
					eventOf(t, "block_update", conversation.BlockUpdate{BlockID: b.ID, Updates: conversation.Updates{Name: hostile, Input: raw, SubagentID: hostile}}),
				} {
					e.ConversationID = in
					events = append(events, e)
				}
				b.Content += hostile
				for _, status := range []conversation.BlockStatus{conversation.BlockStatus(hostile), conversation.Aborted} {
					b.Status = status
					e := complete(t, b)
					e.ConversationID = in
					events = append(events, e)
				}
			}
		}
		events = append(events, eventOf(t, "turn_end", event.TurnEndData{RunID: "run_1", Outcome: session.Outcome(hostile), Reason: hostile}))
		for _, o := range []terminal.Options{
			{}, {Full: true}, {Color: true}, {Rewrite: true}, {Rewrite: true, Color: true, Width: func() int { return int(width) }},
		} {
			shown := show(t, events, o)
			if !o.Rewrite && !o.Color {
				require.NotContains(t, shown, "\x1b")
			}
			// emulate fails on any command that is not a view's. The emulated terminal is wide,
			// because the view itself leaves a column free.
			emulate(t, 1<<20, shown)
		}
		d := terminal.NewDialog(client.Question{
			ID: hostile, Kind: client.PermissionRequest, Title: hostile,
			Questions: []client.QuestionItem{{Question: hostile, Options: []client.QuestionOption{{Label: hostile, Description: hostile}}}},
		})
		require.NotContains(t, d.Prompt(), "\x1b")
		if _, hint := d.Line(hostile); hint != "" {
			require.NotContains(t, hint, "\x1b")
		}
	})
}

func TestCallWithInputOfAnotherFormIsShownByItsTitle(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := terminal.New(&out, terminal.Options{})
	call := tool("1", conversation.Success)
	call.Input, call.Title = json.RawMessage(`{"title":"Writing to a.txt","locations":[]}`), "Writing to a.txt"
	require.NoError(t, v.Event(complete(t, call)))
	require.NoError(t, v.Close())
	require.Equal(t, "tool shell success: Writing to a.txt\n", out.String())
}

func TestAgentReportIsOneLine(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		data any
		want string
	}{
		"screenshot": {
			conversation.Screenshot{Image: conversation.Image{ID: "att_1", MediaType: "image/png"}, Description: "the page"}, "screenshot: the page (image/png, att_1)\n",
		},
		"git_state":        {conversation.GitState{Branch: "fix"}, "branch: fix\n"},
		"review_requested": {conversation.Review{Title: "The\nfix"}, "review requested: The fix\n"},
		"review_result": {
			conversation.ReviewResult{Summary: "good", Verdict: conversation.VerdictRequestChanges, Findings: []conversation.Finding{
				{File: "a.go", Line: 7, Severity: conversation.SeverityError, Comment: "a\nleak"}, {Comment: "no tests"},
			}}, "review, request changes: good\nfinding: error a.go:7 a leak\nfinding: no tests\n",
		},
		"pull_request": {
			conversation.PullRequest{Operation: conversation.PullRequestCreate, Title: "Fix", Branch: "fix"}, "pull request, create: Fix fix\n",
		},
	} {
		var out bytes.Buffer
		require.NoError(t, terminal.New(&out, terminal.Options{}).Event(eventOf(t, kind, c.data)))
		require.Equal(t, c.want, out.String())
	}
	var out bytes.Buffer
	seen := conversation.GitState{Branch: "fix", Source: conversation.GitOfWorkspace}
	require.NoError(t, terminal.New(&out, terminal.Options{}).Event(eventOf(t, "git_state", seen)))
	require.Empty(t, out.String(), "the agent has not said so")
}
