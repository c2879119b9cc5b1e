package opencode_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const testSession = "ses_0193a5f07c7e7b3e8f0a1b2c3d4e5f60"

// patience is how long a test waits for anything that the program does.
const patience = time.Minute

// program is the bridge with the real OpenCode and its own model server.
type program struct {
	server          *modelserver.Server
	home, workspace string
	cmd             *exec.Cmd
	stdin           io.WriteCloser
	frames          chan []byte // lines of stdout; closed when the process has gone
	folder          conversation.Folder
	// allModels has it know all models that it knows by itself.
	allModels bool
}

func newProgram(t *testing.T, scripts map[string][]modelserver.Step) *program {
	t.Helper()
	p := &program{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	return p
}

// begin starts the program's process.
func (p *program) begin(t *testing.T, in agent.LaunchInput, flags ...string) {
	t.Helper()
	in.SessionID, in.Home, in.Workspace = testSession, p.home, p.workspace
	launch, err := opencode.New().Launch(in)
	require.NoError(t, err)
	cmd := command(t, p.server.URL(), launch, flags...)
	cmd.Dir = launch.Dir
	if !p.allModels {
		cmd.Env = append(cmd.Env, fewModels(t))
	}
	for k, v := range launch.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p.cmd, p.frames = cmd, make(chan []byte, 16) // some slack
	done, frames := make(chan struct{}), p.frames
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

// next is the next line of stdout.
func (p *program) next(t *testing.T) []byte {
	t.Helper()
	select {
	case data, ok := <-p.frames:
		require.True(t, ok, "the process is gone")
		t.Logf("%.400s", data) // seen when the test fails
		return data
	case <-time.After(patience):
		require.FailNow(t, "the agent does nothing")
		return nil
	}
}

// played is a turn.
type played struct {
	events    []conversation.Event
	questions []agent.Question
	end       *agent.TurnEnd
}

// run runs a prompt until found says so, or the turn has ended, and answers what is asked meanwhile.
func (p *program) run(t *testing.T, run agent.RunContext, content string, found func(conversation.Event) bool, answers ...agent.Answer) played {
	t.Helper()
	line, err := opencode.New().Prompt(agent.PromptInput{RunID: run.RunID, Content: content})
	require.NoError(t, err)
	p.write(t, line)
	tr, err := opencode.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var out played
	for no := int64(0); out.end == nil; no++ {
		got, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.Now(), Data: p.next(t)})
		require.NoError(t, err)
		for _, e := range got.Events {
			p.folder.Add(e)
			out.events = append(out.events, e)
		}
		out.end = got.End
		for _, q := range got.Questions {
			require.Greater(t, len(answers), len(out.questions), "nobody expects this question: %+v", q)
			line, err := opencode.New().Answer(q, answers[len(out.questions)])
			require.NoError(t, err)
			p.write(t, line)
			out.questions = append(out.questions, q)
		}
		for _, e := range got.Events {
			if found != nil && found(e) {
				for _, e := range tr.Cut(time.Now()) {
					p.folder.Add(e)
				}
				return out
			}
		}
	}
	require.Len(t, out.questions, len(answers))
	return out
}

// turn runs a prompt to its end.
func (p *program) turn(t *testing.T, content string, answers ...agent.Answer) played {
	t.Helper()
	return p.run(t, agent.RunContext{RunID: session.NewID(session.RunPrefix)}, content, nil, answers...)
}

func (p *program) write(t *testing.T, data []byte) {
	t.Helper()
	_, err := p.stdin.Write(data)
	require.NoError(t, err)
}

// files are the saved sessions.
func (p *program) files(t *testing.T) []string {
	t.Helper()
	launch, err := opencode.New().Launch(agent.LaunchInput{SessionID: testSession, Home: p.home, Workspace: p.workspace})
	require.NoError(t, err)
	names, err := filepath.Glob(launch.Transcripts[0])
	require.NoError(t, err)
	return names
}

// agree holds the transcript to what was said.
func (p *program) agree(t *testing.T) {
	t.Helper()
	require.Empty(t, cmp.Diff(capture.Lines(parse(t, p.files(t)...)), capture.Lines(p.folder.Conversation())), "- parsed, + streamed")
}

func (p *program) close(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	for range p.frames { // until it has gone
	}
}

// blocks are those of the turn in the main conversation.
func (p played) blocks() []conversation.Block {
	var f conversation.Folder
	for _, e := range p.events {
		f.Add(e)
	}
	return f.Conversation().Threads[0].Blocks
}

func (p played) only(t *testing.T, kind conversation.BlockType) conversation.Block {
	t.Helper()
	var found []conversation.Block
	for _, b := range p.blocks() {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, "%s in %+v, which ended with %+v", kind, p.blocks(), p.end)
	return found[0]
}

// echoServer is a server of the Model Context Protocol with one tool, in shell.
const echoServer = `while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}\n' "$id" ;;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","description":"says it again","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
  *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done`

// TestAProfileReachesTheModel looks for a marker of each part of a profile in what the real program
// asks of the model.
func TestAProfileReachesTheModel(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "echo.sh")
	require.NoError(t, os.WriteFile(script, []byte(echoServer), 0o600))
	profile := session.ProfileSpec{
		Instructions: "marker-instructions: be brief",
		Skills:       []session.ProfileText{{Name: "skilled", Description: "marker-skill: use it", Content: "body of the skill"}},
		Subagents:    []session.ProfileText{{Name: "helper", Description: `marker-subagent: "quoted"`, Content: "body of the subagent"}},
		Commands:     []session.ProfileText{{Name: "greet", Content: "{{hello}} marker-command $ARGUMENTS"}},
		MCPServers:   []session.ProfileMCPServer{{Name: "demo", Command: "sh", Args: []string{script}}},
		Model:        "anthropic/claude-haiku-4-5",
		Permissions:  session.Permissions{Tools: map[string]session.Policy{"webfetch": session.PolicyDeny, "write": session.PolicyAsk}},
	}
	p := newProgram(t, map[string][]modelserver.Step{
		"hello": {{Text: "Hello."}},
		"write": {
			{Calls: []modelserver.Call{{Tool: "write", Input: map[string]any{"filePath": "note.txt", "content": "x"}}}},
			{Text: "It is written."},
		},
	})
	p.allModels = true
	in := agent.LaunchInput{Home: p.home, Profile: &profile, Permissions: profile.Permissions}
	files, err := opencode.New().ProfileFiles(in)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	p.begin(t, in)
	r := p.turn(t, "/greet you")
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Equal(t, "anthropic/claude-haiku-4-5", r.end.Model)
	sent := p.server.Sent()
	for _, marker := range []string{"marker-instructions", "marker-skill", "marker-subagent", "marker-command you", "demo_echo"} {
		if !strings.Contains(sent, marker) { // what was sent is too long to be shown
			require.Failf(t, "the model is not told", "%s is not in what was sent", marker)
		}
	}
	requests := p.server.Requests()
	last := requests[len(requests)-1]
	require.Contains(t, last.Tools, "bash")
	require.NotContains(t, last.Tools, "webfetch", "it is denied by name")
	require.Equal(t, "claude-haiku-4-5", last.Model)

	r = p.turn(t, "{{write}} it", agent.Answer{Decision: agent.DecisionOnce})
	require.Equal(t, "write", r.questions[0].ToolName, "OpenCode itself asks about edit")
	require.Equal(t, r.only(t, conversation.ToolUse).ID, r.questions[0].ToolUseID)
	require.FileExists(t, filepath.Join(p.workspace, "note.txt"))
	p.agree(t)
	installed, err := os.ReadDir(filepath.Join(p.home, ".config/opencode/node_modules"))
	require.NoError(t, err)
	require.Empty(t, installed, "OpenCode has fetched something")
	p.close(t)
}

func TestCompactsBehindAnAttemptThatFailed(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{
		"hello": {{Text: "Hello."}},
		"env":   {{Calls: []modelserver.Call{bash("env; echo \"$0\"")}}, {Text: "There it is."}},
		"cut":   {{Text: strings.Repeat("word ", 40), Cut: true, Pause: 2 * time.Millisecond}},
	})
	p.begin(t, agent.LaunchInput{}, "--retries", "2")
	p.turn(t, "{{hello}} to the zebra")
	r := p.turn(t, "{{cut}} it")
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	p.agree(t)

	r = p.turn(t, "{{env}} of your tools")
	printed := string(r.only(t, conversation.ToolResult).Output)
	require.Contains(t, printed, "HOME=")
	require.NotContains(t, printed, "sk-ant-none", "tools have the key")
	require.NotContains(t, printed, "PASSWORD")
	p.agree(t)

	r = p.turn(t, "/compact")
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Equal(t, "compaction", r.only(t, conversation.System).Subtype)
	require.NotEmpty(t, r.only(t, conversation.System).Message)
	p.agree(t)
	p.close(t)
}

func TestGoesOnWithAPromptThatWasCutOff(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{
		"wait":  {{Text: "This takes long.", Calls: []modelserver.Call{bash(untilKilled)}}, {Text: "I have gone on."}},
		"hello": {{Text: "Hello."}},
	})
	p.begin(t, agent.LaunchInput{})
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	p.run(t, run, "{{wait}} for it", func(e conversation.Event) bool {
		d, ok := e.Data.(conversation.BlockUpdate)
		return ok && d.Updates.Status == conversation.Running
	})
	require.Eventually(t, func() bool {
		c := parse(t, p.files(t)...)
		return len(c.Threads[0].Blocks) == 3 // prompt, text, call
	}, patience, 20*time.Millisecond)
	require.NoError(t, p.cmd.Process.Kill())
	for range p.frames { // until it has gone
	}

	p.begin(t, agent.LaunchInput{Resume: true})
	r := p.run(t, run, "{{wait}} for it", nil)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Equal(t, "I have gone on.", r.only(t, conversation.AssistantText).Content)
	require.Len(t, p.server.Requests()[len(p.server.Requests())-1].Prompts, 1, "the model has the prompt once")
	p.agree(t)
	p.close(t)
}

func TestBeginsAnewWhereNothingCanBeRead(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	dir := filepath.Join(p.home, ".local/share/overwinter/opencode", testSession)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ses_cut.json"), []byte(`{"info":{"id":"ses_cut"},"mess`), 0o600))
	p.begin(t, agent.LaunchInput{Resume: true})
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} you").end.Outcome)
	p.agree(t)
	p.close(t)
}
