package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/demoagent"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// testSession names the transcripts of tests.
const testSession = "ses_test"

// begun is the start time of the tests' clock, which advances by a millisecond whenever it is read.
var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stage is a home and a workspace for processes of the agent, which run inside the test with a
// deterministic clock and ids.
type stage struct {
	home, workspace string
	ticks, ids      int
	permissions     permission.Rules
	answers         []agent.Answer // answers to the agent's questions, in order; if empty, stdin is closed without an answer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{home: t.TempDir(), workspace: t.TempDir()}
}

func (s *stage) prompt(t *testing.T, run, content string) string {
	t.Helper()
	data, err := Adapter{}.Prompt(agent.PromptInput{
		RunID: run, PromptID: "p-" + run, Content: content, Author: "ada", At: begun.Add(-time.Minute),
	})
	require.NoError(t, err)
	return string(data)
}

// process runs one process with all of stdin and returns its lines and its exit code.
func (s *stage) process(t *testing.T, stdin string) ([]string, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := demoagent.Agent{
		Home: s.home, Workspace: s.workspace, Stdout: &stdout, Stderr: &stderr, Model: demoformat.Name,
		Now: func() time.Time {
			s.ticks++
			return begun.Add(time.Duration(s.ticks) * time.Millisecond)
		},
		NewID: func() string {
			s.ids++
			return fmt.Sprintf("id-%03d", s.ids)
		},
	}
	var in io.Reader = strings.NewReader(stdin)
	if len(s.answers) > 0 {
		r, w := io.Pipe()
		defer w.Close() // never fails
		in, p.Stdout = io.MultiReader(in, r), &listener{stage: s, received: &stdout, stdin: w}
	}
	code := p.Run(append([]string{"--session", testSession}, permissionFlags(s.permissions)...), in)
	return strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n"), code
}

// listener is a stdout that answers questions on stdin until the turn has ended.
type listener struct {
	stage    *stage
	received io.Writer
	stdin    *io.PipeWriter
}

func (a *listener) Write(data []byte) (int, error) {
	l, _ := demoformat.DecodeLine(data)
	switch {
	case l.Type == demoformat.LineResult:
		_ = a.stdin.Close() // never fails
	case l.Type == demoformat.LineQuestion && len(a.stage.answers) > 0:
		var t translator
		t.read(l, l.At)
		answer, err := Adapter{}.Answer(t.Out.Questions[0], a.stage.answers[0])
		if err != nil {
			return 0, err
		}
		a.stage.answers = a.stage.answers[1:]
		if _, err := a.stdin.Write(answer); err != nil {
			return 0, err
		}
	}
	return a.received.Write(data)
}

// play runs one prompt in a new process and returns the journal of the run.
func (s *stage) play(t *testing.T, run, content string) []agent.Frame {
	t.Helper()
	lines, code := s.process(t, s.prompt(t, run, content))
	fs := frames(lines)
	if code != demoagent.ExitDone {
		data, err := json.Marshal(agent.ExitReport{Code: code, Stderr: "demo agent: crashing, as the script says\n"})
		require.NoError(t, err)
		fs = append(fs, agent.Frame{No: int64(len(fs)), Stream: agent.Exit, At: begun.Add(2 * time.Hour), Data: data})
	}
	return fs
}

func frames(lines []string) []agent.Frame {
	fs := make([]agent.Frame, len(lines))
	for i, l := range lines {
		at := begun.Add(time.Hour + time.Duration(i)*time.Millisecond)
		fs[i] = agent.Frame{No: int64(i), Stream: agent.Stdout, At: at, Data: []byte(l)}
	}
	return fs
}

func (s *stage) files(t *testing.T) []transcript.File {
	t.Helper()
	launch, err := Adapter{}.Launch(agent.LaunchInput{SessionID: testSession, Home: s.home, Workspace: s.workspace})
	require.NoError(t, err)
	var files []transcript.File
	for _, pattern := range launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			rel, err := filepath.Rel(s.home, name)
			require.NoError(t, err)
			files = append(files, transcript.File{Path: filepath.Join("/home/agent", rel), Data: data})
		}
	}
	return files
}

// translated translates frames with one translator.
func translated(t *testing.T, run string, fs []agent.Frame) ([]conversation.Event, *agent.TurnEnd) {
	t.Helper()
	got := read(t, run, fs, func(int) bool { return false })
	return got.Events, got.End
}

// read translates frames, with a new translator before those that restart selects. It returns the
// whole translation, and the events of a final Cut.
func read(t *testing.T, run string, fs []agent.Frame, restart func(int) bool) (all reading) {
	t.Helper()
	tr, err := Adapter{}.NewTranslator(agent.RunContext{RunID: run}, nil)
	require.NoError(t, err)
	for i, f := range fs {
		if restart(i) {
			state, err := tr.State()
			require.NoError(t, err)
			tr, err = Adapter{}.NewTranslator(agent.RunContext{RunID: run}, state)
			require.NoError(t, err)
		}
		got, err := tr.Translate(f)
		require.NoError(t, err)
		all.Events = append(all.Events, got.Events...)
		all.Questions = append(all.Questions, got.Questions...)
		all.Resolved = append(all.Resolved, got.Resolved...)
		if got.End != nil {
			all.End = got.End
		}
	}
	all.cut = tr.Cut(begun)
	return all
}

type reading struct {
	agent.Translation
	cut []conversation.Event
}

// requireSettled checks that every question is resolved once, by the end of the turn at the latest.
func (r reading) requireSettled(t require.TestingT) {
	var asked []string
	for _, q := range r.Questions {
		asked = append(asked, q.ID)
	}
	if r.End != nil {
		require.ElementsMatch(t, asked, r.Resolved)
		return
	}
	require.Subset(t, asked, r.Resolved)
	require.LessOrEqual(t, len(r.Resolved), len(asked))
}

func fold(events []conversation.Event) conversation.Conversation {
	var f conversation.Folder
	for _, e := range events {
		f.Add(e)
	}
	return f.Conversation()
}

func TestStreamsOneDeltaPerWordAndOneBlockPerSpeech(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events, end := translated(t, "r1", s.play(t, "r1", "to the\nmany words\n$ true\nlast"))
	var deltas []string
	for _, e := range events {
		if d, ok := e.Data.(conversation.TextDelta); ok {
			deltas = append(deltas, d.Delta)
		}
	}
	require.Equal(t, []string{"to ", "the\n", "many ", "words", "last"}, deltas)
	require.Equal(t, &agent.TurnEnd{
		Outcome: session.OutcomeCompleted, Model: demoformat.Name,
		Usage: usage.Usage{InputTokens: 7, OutputTokens: 5, ToolCalls: 1},
	}, end)
	blocks := fold(events).Threads[0].Blocks
	require.Len(t, blocks, 5)
	require.Equal(t, "to the\nmany words", blocks[1].Content)
}

func TestRunsCommandInWorkspace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events, _ := translated(t, "r1", s.play(t, "r1", "$ pwd; echo oops >&2; exit 4"))
	result := fold(events).Threads[0].Blocks[2]
	require.JSONEq(t, fmt.Sprintf(`{"output":"%s\noops\n","exitCode":4}`, s.workspace), string(result.Output))
	require.True(t, result.IsError)
}

func TestLongOutputIsTruncated(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events, _ := translated(t, "r1", s.play(t, "r1", "$ head -c 200000 /dev/zero | tr '\\0' x"))
	var out demoagent.ShellOutput
	require.NoError(t, json.Unmarshal(fold(events).Threads[0].Blocks[2].Output, &out))
	require.Equal(t, strings.Repeat("x", demoagent.MaxOutput)+"\n[cut: 200000 bytes in all]", out.Output)
	require.Zero(t, out.ExitCode)
}

func TestBackgroundProcessesDoNotDelayTurn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	began := time.Now()
	events, _ := translated(t, "r1", s.play(t, "r1", "$ sleep 300 & echo $! >pid; echo started"))
	require.Less(t, time.Since(began), 2*time.Minute)
	require.Contains(t, string(fold(events).Threads[0].Blocks[2].Output), `"output":"started\n"`)
	pid, err := os.ReadFile(filepath.Join(s.workspace, "pid"))
	require.NoError(t, err)
	require.NoError(t, killNamed(t, strings.TrimSpace(string(pid))))
}

func TestWritesOnlyInWorkspace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(s.workspace, "link")))
	events, end := translated(t, "r1", s.play(t, "r1",
		"write a/b/c.txt: hello\nwrite ../out.txt: no\nwrite /tmp/overwinter-never: no\nwrite link/x: no\nwrite a: no"))
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
	data, err := os.ReadFile(filepath.Join(s.workspace, "a/b/c.txt"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(data))
	require.NoFileExists(t, filepath.Join(s.workspace, "../out.txt"))
	require.NoFileExists(t, "/tmp/overwinter-never")
	require.NoFileExists(t, filepath.Join(outside, "x"))
	var failed []bool
	for _, b := range fold(events).Threads[0].Blocks {
		if b.Type == conversation.ToolResult {
			failed = append(failed, b.IsError)
		}
	}
	require.Equal(t, []bool{false, true, true, true, true}, failed)
}

func TestEndsTurnAsFailed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events, end := translated(t, "r1", s.play(t, "r1", "before\nfail: out of luck\nafter"))
	require.Equal(t, session.OutcomeFailed, end.Outcome)
	require.Equal(t, "out of luck", end.Reason)
	blocks := fold(events).Threads[0].Blocks
	require.Len(t, blocks, 3, "lines after fail do not run")
	require.Equal(t, "error", blocks[2].Subtype)
}

func TestContinuesWhenSubagentFails(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events, end := translated(t, "r1", s.play(t, "r1", "subagent bob: fail: no\nsubagent eve: subagent mallory: hi\nafter"))
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
	c := fold(events)
	require.Len(t, c.Threads, 3, "subagents have none")
	require.Equal(t, conversation.Failed, c.Threads[0].Blocks[1].Status)
	require.Equal(t, conversation.Success, c.Threads[0].Blocks[3].Status)
	require.Equal(t, `"subagent mallory: hi"`, string(c.Threads[0].Blocks[4].Output))
}

func TestRecallNeedsOnlyTranscript(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	answer := func(run string) string {
		events, _ := translated(t, run, s.play(t, run, "recall"))
		return fold(events).Threads[0].Blocks[1].Content
	}
	s.play(t, "r1", "the first \"prompt\"\nhas two lines")
	s.play(t, "r2", "crash")
	require.Equal(t, `I have had 3 prompts. The first was: "the first \"prompt\"\nhas two lines".`, answer("r3"))
	require.NoError(t, os.Remove(filepath.Join(demoformat.TranscriptDir(s.home, testSession), demoformat.MainFile)))
	require.Equal(t, `I have had 1 prompt. The first was: "recall".`, answer("r4"))
}

func TestAcknowledgesPromptItKnows(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]agent.TurnEnd{
		"hello":    {Outcome: session.OutcomeCompleted, Usage: usage.Usage{InputTokens: 1, OutputTokens: 1}},
		"fail: no": {Outcome: session.OutcomeFailed, Reason: "no", Usage: usage.Usage{InputTokens: 2}},
		"crash":    {Outcome: session.OutcomeUnknown, Reason: reasonDelivered},
	} {
		s := newStage(t)
		s.play(t, "r1", content)
		before := s.files(t)
		events, end := translated(t, "r1", s.play(t, "r1", content))
		require.Equal(t, &want, end, content)
		require.Empty(t, fold(events).Threads[0].Blocks, content)
		require.Equal(t, before, s.files(t), "%s: nothing is recorded twice", content)
	}
}

func TestContinuesAfterTruncatedTranscript(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(t, "r1", "hello there")
	name := filepath.Join(demoformat.TranscriptDir(s.home, testSession), demoformat.MainFile)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	for n := range data {
		require.NoError(t, os.WriteFile(name, data[:n], 0o600))
		fs := s.play(t, fmt.Sprintf("r%d", n+2), "again")
		_, end := translated(t, fmt.Sprintf("r%d", n+2), fs)
		require.Equal(t, session.OutcomeCompleted, end.Outcome)
		c, err := Adapter{}.Parse(s.files(t))
		require.NoError(t, err)
		blocks := c.Threads[0].Blocks
		require.GreaterOrEqual(t, len(blocks), 2, "cut at %d", n)
		require.Equal(t, conversation.UserMessage, blocks[len(blocks)-2].Type, "cut at %d", n)
		require.Equal(t, "again", blocks[len(blocks)-1].Content, "cut at %d", n)
		require.Equal(t, conversation.Complete, blocks[len(blocks)-1].Status)
	}
}

func TestLongSpeechIsSplit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	text := strings.TrimSpace(strings.Repeat("word ", 10_000))
	fs := s.play(t, "r1", text+"\nthink: "+strings.Repeat("x", 30_000)+"\n$ : "+strings.Repeat("y", 30_000))
	tr, err := Adapter{}.NewTranslator(agent.RunContext{RunID: "r1"}, nil)
	require.NoError(t, err)
	var events []conversation.Event
	for _, f := range fs {
		got, err := tr.Translate(f)
		require.NoError(t, err)
		events = append(events, got.Events...)
		state, err := tr.State()
		require.NoError(t, err)
		require.Less(t, len(state), demoagent.MaxBlock+demoagent.MaxShown+(2<<10))
	}
	var said strings.Builder
	for _, b := range fold(events).Threads[0].Blocks {
		if b.Type == conversation.AssistantText {
			require.LessOrEqual(t, len(b.Content), demoagent.MaxBlock)
			said.WriteString(b.Content)
		}
	}
	require.Equal(t, text, said.String())
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--session", "../x"}, {"--session", "s", "more"}, {"--color"}} {
		p := demoagent.Agent{Home: t.TempDir(), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}
		require.Equal(t, demoagent.ExitUsage, p.Run(args, strings.NewReader("")), "%v", args)
	}
}

func TestUnknownInputIsIgnored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lines, code := s.process(t, "\n{\nnull\n{\"type\":\"user\"}\n{\"type\":\"interrupt\",\"runId\":\"r9\"}\n{\"type\":\"interrupt\"}\n{\"type\":\"answer\"}\n{\"type\":\"answer\",\"uuid\":\"q\",\"decision\":\"once\"}\n"+
		strings.TrimSuffix(s.prompt(t, "r1", "hello"), "\n"))
	require.Equal(t, demoagent.ExitDone, code)
	_, end := translated(t, "r1", frames(lines))
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
}

func TestTranscriptWriteErrorIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.home, demoformat.RootDir), nil, 0o600))
	_, code := s.process(t, s.prompt(t, "r1", "hello"))
	require.Equal(t, demoagent.ExitFailed, code)
}
