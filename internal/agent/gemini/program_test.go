package gemini_test

import (
	"bufio"
	"encoding/json"
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
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// patience is how long these tests wait for the program, which is slow on a busy machine.
const patience = 2 * time.Minute

// program is the real Gemini CLI with its bridge and its own model server.
type program struct {
	server *modelserver.Server
	input  agent.LaunchInput
	stdin  io.WriteCloser
	frames chan []byte // lines of stdout; closed when the process has gone
	folder conversation.Folder
}

// start starts it as in describes; home and workspace are made where they are not given.
func start(t *testing.T, scripts map[string][]modelserver.Step, in agent.LaunchInput) *program {
	t.Helper()
	p := &program{server: modelserver.New(scripts), input: in}
	t.Cleanup(p.server.Close)
	p.input.SessionID, p.input.Home, p.input.Workspace = session.NewID(session.SessionPrefix), t.TempDir(), t.TempDir()
	p.begin(t)
	return p
}

// begin starts the program's process, with its profile written as into a sandbox.
func (p *program) begin(t *testing.T) {
	t.Helper()
	files, err := gemini.New().ProfileFiles(p.input)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	launch, err := gemini.New().Launch(p.input)
	require.NoError(t, err)
	cmd := command(t, p.server.URL(), launch)
	cmd.Dir = launch.Dir
	for k, v := range launch.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	done, frames := make(chan struct{}), make(chan []byte, 16) // some slack
	p.frames = frames
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

// close ends the process in order.
func (p *program) close(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-p.frames:
			if !ok {
				return
			}
		case <-deadline:
			require.FailNow(t, "the bridge does not end when its stdin does")
		}
	}
}

// played is what became of a turn.
type played struct {
	end       agent.TurnEnd
	questions []agent.Question
	blocks    []conversation.Block // of the main conversation, in this turn
}

func (p *program) write(t *testing.T, line []byte) {
	t.Helper()
	_, err := p.stdin.Write(line)
	require.NoError(t, err)
}

// turn runs a prompt to its end and answers what is asked meanwhile.
func (p *program) turn(t *testing.T, content string, answers ...agent.Answer) played {
	t.Helper()
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix), PromptID: session.NewID(session.PromptPrefix)}
	line, err := gemini.New().Prompt(agent.PromptInput{RunID: run.RunID, PromptID: run.PromptID, Content: content})
	require.NoError(t, err)
	p.write(t, line)
	return p.finish(t, run, answers...)
}

func (p *program) finish(t *testing.T, run agent.RunContext, answers ...agent.Answer) played {
	t.Helper()
	tr, err := gemini.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var out played
	var turn conversation.Folder
	deadline := time.After(patience)
	for no := int64(0); ; no++ {
		var line []byte
		var ok bool
		select {
		case line, ok = <-p.frames:
			require.True(t, ok, "the process is gone")
		case <-deadline:
			require.FailNow(t, "the program does nothing")
		}
		got, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.Now(), Data: line})
		require.NoError(t, err)
		for _, e := range got.Events {
			p.folder.Add(e)
			turn.Add(e)
		}
		for _, q := range got.Questions {
			out.questions = append(out.questions, q)
			require.NotEmpty(t, answers, "nobody answers: %s", q.Title)
			line, err := gemini.New().Answer(q, answers[0])
			require.NoError(t, err)
			answers = answers[1:]
			p.write(t, line)
		}
		if got.End != nil {
			out.end, out.blocks = *got.End, turn.Conversation().Threads[0].Blocks
			return out
		}
	}
}

// requireSame compares what was streamed with the transcript.
func (p *program) requireSame(t *testing.T) {
	t.Helper()
	launch, err := gemini.New().Launch(p.input)
	require.NoError(t, err)
	data, err := os.ReadFile(launch.Transcripts[0])
	require.NoError(t, err)
	parsed, err := gemini.New().Parse([]session.TranscriptFile{{Path: launch.Transcripts[0], Data: data}})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(p.folder.Conversation())), "- parsed, + streamed")
}

func (p played) only(t *testing.T, kind conversation.BlockType) conversation.Block {
	t.Helper()
	var found []conversation.Block
	for _, b := range p.blocks {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "blocks of type %s", kind)
	return found[0]
}

// TestAProfileReachesTheModel reads each part of a profile back from what the model received.
func TestAProfileReachesTheModel(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	p := start(t, map[string][]modelserver.Step{
		"env":    {{Calls: []modelserver.Call{modelserver.Shell("echo marker is $PROFILE_MARKER")}}, {Text: "Done."}},
		"polish": {{Text: "It shines."}},
	}, agent.LaunchInput{Profile: &session.ProfileSpec{
		Instructions: "Always mind the instruction-marker.",
		Skills:       []session.ProfileText{{Name: "knitting", Description: "Use it for: \"skill-marker\" yarn", Content: "Knit."}},
		Subagents:    []session.ProfileText{{Name: "owl", Description: "Knows the agent-marker", Content: "You are an owl."}},
		Commands:     []session.ProfileText{{Name: "polish", Description: "Make it shine", Content: "{{polish}} command-marker \"{{args}}\"\nthoroughly"}},
		MCPServers: []session.ProfileMCPServer{{
			Name: "demo", Command: self, Args: []string{"mcp"}, Environment: map[string]string{asBridge: "mcp", "MCP_MARKER": "mcp-marker"},
		}},
		Model:       "gemini-3-flash-preview",
		Environment: map[string]string{"PROFILE_MARKER": "environment-marker"},
	}})
	got := p.turn(t, "{{env}} please")
	require.Equal(t, session.OutcomeCompleted, got.end.Outcome, got.end.Reason)
	require.Equal(t, "gemini-3-flash-preview", got.end.Model)
	require.Contains(t, string(got.only(t, conversation.ToolResult).Output), "marker is environment-marker")
	first := p.server.Requests()[0]
	require.Equal(t, "gemini-3-flash-preview", first.Model)
	for _, marker := range []string{"instruction-marker", "skill-marker", "agent-marker", "mcp-marker"} {
		require.Contains(t, first.System, marker, "want %s", marker)
	}
	require.Contains(t, first.Tools, "mcp_demo_echo")

	got = p.turn(t, "/polish the brass")
	require.Equal(t, session.OutcomeCompleted, got.end.Outcome, got.end.Reason)
	require.Equal(t, "/polish the brass", got.only(t, conversation.UserMessage).Content)
	require.Equal(t, "It shines.", got.only(t, conversation.AssistantText).Content)
	requests := p.server.Requests()
	prompts := requests[len(requests)-1].Prompts
	require.Equal(t, "{{polish}} command-marker \"the brass\"\nthoroughly", prompts[len(prompts)-1])
	p.close(t)
	p.requireSame(t)
}

// serveMCP is a server of the Model Context Protocol with one tool.
func serveMCP(r io.Reader, w io.Writer) int {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		result := map[string]any{}
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": "2025-03-26", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "demo", "version": "1"},
			}
		case "tools/list":
			result["tools"] = []map[string]any{{
				"name": "echo", "description": os.Getenv("MCP_MARKER"), "inputSchema": map[string]any{"type": "object", "properties": map[string]any{}},
			}}
		}
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			return 1
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return 0
		}
	}
}

// TestALoadedSessionIsRememberedRightAndAsksNothing: calls are present once, after the answers that
// made them, and what was allowed before is still allowed.
func TestALoadedSessionIsRememberedRightAndAsksNothing(t *testing.T) {
	t.Parallel()
	p := start(t, map[string][]modelserver.Step{
		"two": {
			{Thinking: "I need two.", Text: "First.", Calls: []modelserver.Call{modelserver.Shell("echo one && echo more"), modelserver.ReadFile("nowhere")}},
			{Text: "Second.", Calls: []modelserver.Call{modelserver.Shell("echo three")}},
			{Text: "Over."},
		},
		"again":  {{Calls: []modelserver.Call{modelserver.Shell("echo one && echo more")}}, {Text: "Once more."}},
		"recall": {{Text: "I remember ", Recall: true}},
	}, agent.LaunchInput{})
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{two}} at first").end.Outcome)
	for range 2 {
		p.close(t)
		p.begin(t)
		got := p.turn(t, "{{recall}} it")
		require.Contains(t, got.only(t, conversation.AssistantText).Content, "{{two}} at first")
		requests := p.server.Requests()
		last := requests[len(requests)-1]
		require.Equal(t, 3, last.Results, "each result once")
	}
	got := p.turn(t, "{{again}} now")
	require.Equal(t, session.OutcomeCompleted, got.end.Outcome, got.end.Reason)
	require.Empty(t, got.questions)
	require.Equal(t, conversation.Success, got.only(t, conversation.ToolUse).Status)
	p.close(t)
	p.requireSame(t)
}

// TestTextIsShownAsItWasSaid: the program writes it down without comments and without characters
// that have no width.
func TestTextIsShownAsItWasSaid(t *testing.T) {
	t.Parallel()
	const text = "A family \U0001f469\u200d\U0001f469\u200d\U0001f467 and <!-- a comment --> a tail."
	p := start(t, map[string][]modelserver.Step{
		"odd":   {{Text: text + "\n\n", Calls: []modelserver.Call{modelserver.Shell("true")}}, {Text: "  over "}},
		"slow":  {{Text: long(), Pause: 20 * time.Millisecond}},
		"loop":  {{Text: strings.Repeat("over and over ", 200)}},
		"plain": {{Text: "Plain."}},
	}, agent.LaunchInput{})
	got := p.turn(t, "{{odd}} one")
	require.Equal(t, session.OutcomeCompleted, got.end.Outcome, got.end.Reason)
	var said []string
	for _, b := range got.blocks {
		if b.Type == conversation.AssistantText {
			said = append(said, b.Content)
		}
	}
	require.Equal(t, []string{text, "over"}, said)
	require.Positive(t, got.end.Usage.OutputTokens)

	got = p.turn(t, "{{loop}} it")
	require.Equal(t, session.OutcomeFailed, got.end.Outcome)
	require.Equal(t, "max_turn_requests", got.end.Reason, "the program does not go in circles twice")
	require.Equal(t, "reminder", got.only(t, conversation.System).Subtype)

	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	line, err := gemini.New().Prompt(agent.PromptInput{RunID: run.RunID, Content: "{{slow}} now"})
	require.NoError(t, err)
	p.write(t, append(line, gemini.New().Interrupt(run.RunID).Stdin...))
	require.Equal(t, session.OutcomeCancelled, p.finish(t, run).end.Outcome, "an interrupt may come at once")
	p.write(t, gemini.New().Interrupt(run.RunID).Stdin)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{plain}} then").end.Outcome, "a late one hits no other run")
	p.close(t)
	p.requireSame(t)
}

// TestADeniedToolIsNotOffered, and one that is allowed for the session is asked for once.
func TestADeniedToolIsNotOffered(t *testing.T) {
	t.Parallel()
	write := modelserver.Call{Tool: "write_file", Input: map[string]any{"file_path": "a.txt", "content": "a"}}
	other := modelserver.Call{Tool: "write_file", Input: map[string]any{"file_path": "b.txt", "content": "b"}}
	p := start(t, map[string][]modelserver.Step{
		"twice": {{Calls: []modelserver.Call{write}}, {Calls: []modelserver.Call{other}}, {Text: "Both."}},
	}, agent.LaunchInput{Permissions: session.Permissions{
		Default: session.PolicyAsk, Tools: map[string]session.Policy{"run_shell_command": session.PolicyDeny},
	}})
	got := p.turn(t, "{{twice}} please", agent.Answer{Decision: agent.DecisionSession})
	require.Equal(t, session.OutcomeCompleted, got.end.Outcome, got.end.Reason)
	require.Len(t, got.questions, 1)
	require.Equal(t, "write_file", got.questions[0].ToolName)
	first := p.server.Requests()[0]
	require.Contains(t, first.Tools, "write_file")
	require.NotContains(t, first.Tools, "run_shell_command")
	require.FileExists(t, filepath.Join(p.input.Workspace, "b.txt"))
	p.close(t)
	p.requireSame(t)
}
