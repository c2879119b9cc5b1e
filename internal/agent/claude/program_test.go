package claude_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asking are permissions with which the agent asks.
var asking = session.Permissions{Default: session.PolicyAsk}

// program is the real Claude Code with its own model server.
type program struct {
	server          *modelserver.Server
	launch          agent.Launch
	home, workspace string
	stdin           io.WriteCloser
	frames          chan []byte // lines of stdout; closed when the process has gone
	folder          conversation.Folder
}

// startWith is start with a profile, written as into a sandbox.
func startWith(t *testing.T, profile session.ProfileSpec, scripts map[string][]modelserver.Step) *program {
	t.Helper()
	p := &program{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	in := agent.LaunchInput{SessionID: session.NewID(session.SessionPrefix), Profile: &profile, Permissions: profile.Permissions, Home: p.home, Workspace: p.workspace}
	files, err := claude.New().ProfileFiles(in)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	p.begin(t, in)
	return p
}

func start(t *testing.T, permissions session.Permissions, scripts map[string][]modelserver.Step) *program {
	t.Helper()
	p := &program{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	p.begin(t, agent.LaunchInput{SessionID: session.NewID(session.SessionPrefix), Permissions: permissions})
	return p
}

// begin starts the program's process.
func (p *program) begin(t *testing.T, in agent.LaunchInput) {
	t.Helper()
	in.Home, in.Workspace = p.home, p.workspace
	launch, err := claude.New().Launch(in)
	require.NoError(t, err)
	p.launch, p.frames = launch, make(chan []byte, 16) // some slack
	cmd := command(t, p.server.URL(), launch)
	cmd.Dir = launch.Dir
	for k, v := range launch.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "CLAUDE_CODE_MAX_RETRIES=2")
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	frames := p.frames
	go func() {
		defer close(done)
		defer close(frames)
		r := bufio.NewReader(stdout)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				break
			}
			select {
			case frames <- line[:len(line)-1]:
			case <-t.Context().Done():
			}
		}
		_ = cmd.Wait() // its end is none of these tests' business
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // mostly gone already
		<-done
	})
}

// turn runs a prompt to its end and answers what is asked meanwhile.
func (p *program) turn(t *testing.T, content string, answers ...agent.Answer) played {
	t.Helper()
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	line, err := claude.New().Prompt(agent.PromptInput{RunID: run.RunID, Content: content})
	require.NoError(t, err)
	p.write(t, line)
	tr, err := claude.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var out played
	for no := int64(0); out.end == nil; no++ {
		var data []byte
		var ok bool
		select {
		case data, ok = <-p.frames:
			require.True(t, ok, "the process is gone")
		case <-time.After(2 * time.Minute):
			require.FailNow(t, "the agent does nothing")
		}
		got, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.Now(), Data: data})
		require.NoError(t, err)
		for _, e := range got.Events {
			p.folder.Add(e)
		}
		out.events = append(out.events, got.Events...)
		out.resolved = append(out.resolved, got.Resolved...)
		out.end = got.End
		for _, q := range got.Questions {
			require.Greater(t, len(answers), len(out.questions), "nobody expects this question: %+v", q)
			line, err := claude.New().Answer(q, answers[len(out.questions)])
			require.NoError(t, err)
			p.write(t, line)
			out.questions = append(out.questions, q)
		}
	}
	require.Len(t, out.questions, len(answers))
	return out
}

func (p *program) write(t *testing.T, data []byte) {
	t.Helper()
	_, err := p.stdin.Write(data)
	require.NoError(t, err)
}

// agree ends the program and holds its transcript to what it said.
func (p *program) agree(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	for range p.frames { // until it has gone
	}
	var files []session.TranscriptFile
	for _, pattern := range p.launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, session.TranscriptFile{Path: name, Data: data})
		}
	}
	parsed, err := claude.New().Parse(files)
	require.NoError(t, err)
	streamed := p.folder.Conversation()
	forgetTimes(parsed, streamed)
	require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
}

func (p played) only(t *testing.T, kind conversation.BlockType) conversation.Block {
	t.Helper()
	var found []conversation.Block
	for _, b := range p.blocks() {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func TestAsksBeforeItActs(t *testing.T) {
	t.Parallel()
	p := start(t, asking, map[string][]modelserver.Step{
		"touch": {
			{Text: "May I?", Calls: []modelserver.Call{modelserver.Bash("touch permitted && echo touched")}},
			{Text: "So be it."},
		},
	})
	file := filepath.Join(p.workspace, "permitted")

	no := p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionReject, Message: "not now"})
	require.NoFileExists(t, file)
	require.Equal(t, session.OutcomeCompleted, no.end.Outcome)
	require.Equal(t, conversation.Failed, no.only(t, conversation.ToolUse).Status)
	require.Contains(t, string(no.only(t, conversation.ToolResult).Output), "not now")
	q := no.questions[0]
	require.Equal(t, agent.Permission, q.Kind)
	require.Equal(t, "Bash", q.ToolName)
	require.Equal(t, no.only(t, conversation.ToolUse).ID, q.ToolUseID)
	require.Equal(t, []string{q.ID}, no.resolved)

	once := p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionOnce})
	require.FileExists(t, file)
	require.Equal(t, conversation.Success, once.only(t, conversation.ToolUse).Status)

	p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionSession})
	p.turn(t, "{{touch}} it") // not asked any more
	p.agree(t)
}

func TestAsksTheUser(t *testing.T) {
	t.Parallel()
	p := start(t, asking, map[string][]modelserver.Step{
		"ask": {{Calls: []modelserver.Call{modelserver.Ask("Which colour?", "Red", "Blue")}}, {Text: "Thank you."}},
	})
	r := p.turn(t, "{{ask}} me", agent.Answer{Decision: agent.DecisionOnce, Answers: map[string]string{"Which colour?": "Green"}})
	require.Equal(t, agent.Inquiry, r.questions[0].Kind)
	require.Equal(t, "Which colour?", r.questions[0].Title)
	require.Len(t, r.questions[0].Inquiries[0].Options, 2)
	require.Contains(t, string(r.only(t, conversation.ToolResult).Output), "Green")
	p.agree(t)
}

func TestTellsHowTheModelsServerFails(t *testing.T) {
	t.Parallel()
	p := start(t, session.Permissions{}, map[string][]modelserver.Step{
		"refused":    {{Status: 400}},
		"overloaded": {{Status: 529}},
		"hello":      {{Text: "Hello."}},
	})
	r := p.turn(t, "{{refused}} it")
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	require.Contains(t, r.end.Reason, "scripted error 400")
	b := r.only(t, conversation.System)
	require.Equal(t, "error", b.Subtype)
	require.Contains(t, b.Message, "scripted error 400")

	r = p.turn(t, "{{overloaded}} it")
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	var subtypes []string
	for _, b := range r.blocks()[1:] {
		subtypes = append(subtypes, b.Subtype)
	}
	require.Equal(t, []string{"retry", "retry", "error"}, subtypes)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} again").end.Outcome)
	p.agree(t)
}

func TestSurvivesACutConnection(t *testing.T) {
	t.Parallel()
	p := start(t, session.Permissions{}, map[string][]modelserver.Step{
		"cut": {{Text: strings.Repeat("word ", 40), Cut: true, Pause: 5 * time.Millisecond}},
	})
	p.turn(t, "{{cut}} it")
	p.agree(t)
}

func TestRunsToolsAndSubagentsSideBySide(t *testing.T) {
	t.Parallel()
	p := start(t, session.Permissions{}, map[string][]modelserver.Step{
		"tools": {
			{Text: "Both.", Calls: []modelserver.Call{modelserver.Bash("echo one"), modelserver.Bash("echo two")}},
			{Text: "Done."},
		},
		"subagents": {
			{Text: "Both.", Calls: []modelserver.Call{modelserver.Subagent("{{child}} A", false), modelserver.Subagent("{{child}} B", true)}},
			{Text: "Waiting."},
			{Text: "Done."},
			{Text: "Done indeed."},
		},
		"child": {{Text: "Looking.", Calls: []modelserver.Call{modelserver.Bash("echo here")}}, {Text: "Seen."}},
	})
	r := p.turn(t, "{{tools}} please")
	require.EqualValues(t, 2, r.end.Usage.ToolCalls)
	require.Positive(t, r.end.Usage.CostUSD)
	r = p.turn(t, "{{subagents}} please")
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome)
	require.EqualValues(t, 4, r.end.Usage.ToolCalls)
	require.Len(t, p.folder.Conversation().Threads, 3)
	for _, b := range r.blocks() {
		if b.Type == conversation.Subagent {
			require.Equal(t, conversation.Success, b.Status)
			require.NotEmpty(t, b.SubagentID)
		}
	}
	p.agree(t)
}

func TestRemembersWhatItCompacted(t *testing.T) {
	t.Parallel()
	p := start(t, session.Permissions{}, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}, "recall": {{Recall: true}}})
	p.turn(t, "{{hello}} to the zebra")
	r := p.turn(t, "/compact")
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome)
	var compaction conversation.Block
	for _, b := range r.blocks() {
		if b.Subtype == "compaction" {
			compaction = b
		}
	}
	require.Contains(t, compaction.Message, "zebra")
	p.turn(t, "{{recall}} it")
	requests := p.server.Requests()
	require.Contains(t, requests[len(requests)-1].Prompts[0], "zebra", "the model was sent the summary")
	p.agree(t)
}

func TestBeginsAnewWhereNothingIsLeftToResume(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"no transcript":     "",
		"an empty one":      " ",
		"one of no message": `{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-21T00:00:00.000Z","sessionId":"x"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &program{
				server: modelserver.New(map[string][]modelserver.Step{"hello": {{Text: "Hello."}}}), home: t.TempDir(), workspace: t.TempDir(),
			}
			t.Cleanup(p.server.Close)
			in := agent.LaunchInput{SessionID: testSession, Resume: true}
			if left != "" {
				file := filepath.Join(p.home, ".claude/projects/-workspace/0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60.jsonl")
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(left), 0o600))
			}
			p.begin(t, in)
			require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} you").end.Outcome)
			p.agree(t)
		})
	}
}
