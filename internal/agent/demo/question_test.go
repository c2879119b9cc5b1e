package demo_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// waitLimit is how long a test waits for the agent.
const waitLimit = 2 * time.Minute

// desk is a session. The test communicates with its processes as a runner would.
type desk struct {
	home, workspace, session string

	permissions permission.Rules
	launch      agent.Launch
	cmd         *exec.Cmd
	stdin       io.WriteCloser
	frames      chan agent.Frame // closed when the process has exited; the last frame is the exit
	folder      conversation.Folder
}

func newDesk(t *testing.T, permissions permission.Rules) *desk {
	t.Helper()
	d := &desk{
		home: t.TempDir(), workspace: t.TempDir(), session: session.NewID(session.SessionPrefix), permissions: permissions,
	}
	d.start(t)
	return d
}

// start starts a process.
func (d *desk) start(t *testing.T) {
	t.Helper()
	launch, err := demo.New().Launch(agent.LaunchInput{
		SessionID: d.session, Home: d.home, Workspace: d.workspace, Permissions: d.permissions,
	})
	require.NoError(t, err)
	d.launch, d.cmd = launch, command(t, launch)
	d.cmd.Dir = launch.Dir
	for k, v := range launch.Env {
		d.cmd.Env = append(d.cmd.Env, k+"="+v)
	}
	d.stdin, err = d.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	frames, cmd, done := make(chan agent.Frame, 16), d.cmd, make(chan struct{}) // some slack
	d.frames = frames
	send := func(f agent.Frame) {
		f.At = time.Now()
		select {
		case frames <- f:
		case <-t.Context().Done():
		}
	}
	go func() {
		defer close(done)
		defer close(frames)
		r := bufio.NewReader(stdout)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				break
			}
			send(agent.Frame{Stream: agent.Stdout, Data: line[:len(line)-1]})
		}
		_ = cmd.Wait() // the frame has the exit status
		data := `{"code":0}`
		if !cmd.ProcessState.Success() {
			data = `{"code":-1,"signal":"killed"}`
		}
		send(agent.Frame{Stream: agent.Exit, Data: []byte(data)})
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // usually exited already
		<-done
	})
}

// stop stops the process gracefully.
func (d *desk) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, d.stdin.Close())
	for range d.frames { // until it has exited
	}
}

func (d *desk) write(t *testing.T, data []byte) {
	t.Helper()
	_, err := d.stdin.Write(data)
	require.NoError(t, err)
}

// answer answers a question.
func (d *desk) answer(t *testing.T, q agent.Question, a agent.Answer) {
	t.Helper()
	data, err := demo.New().Answer(q, a)
	require.NoError(t, err)
	d.write(t, data)
}

// run is a turn with the events that have arrived so far.
type run struct {
	agent.Translation // the whole translation so far
	desk              *desk
	id                string
	translator        agent.Translator
	no                int64
}

func (d *desk) prompt(t *testing.T, content string) *run {
	t.Helper()
	r := &run{desk: d, id: session.NewID(session.RunPrefix)}
	var err error
	r.translator, err = demo.New().NewTranslator(agent.RunContext{RunID: r.id}, nil)
	require.NoError(t, err)
	data, err := demo.New().Prompt(agent.PromptInput{RunID: r.id, PromptID: "p", Content: content, At: time.Now()})
	require.NoError(t, err)
	d.write(t, data)
	return r
}

// until reads frames until the condition holds.
func (r *run) until(t *testing.T, reached func() bool) {
	t.Helper()
	deadline := time.After(waitLimit)
	for !reached() {
		var f agent.Frame
		var ok bool
		select {
		case f, ok = <-r.desk.frames:
			require.True(t, ok, "the process has gone")
		case <-deadline:
			require.FailNow(t, "the agent does nothing")
		}
		f.No = r.no
		r.no++
		got, err := r.translator.Translate(f)
		require.NoError(t, err)
		for _, e := range got.Events {
			r.desk.folder.Add(e)
		}
		r.Events = append(r.Events, got.Events...)
		r.Questions = append(r.Questions, got.Questions...)
		r.Resolved = append(r.Resolved, got.Resolved...)
		r.End = got.End
	}
}

// asked returns question number n of the turn.
func (r *run) asked(t *testing.T, n int) agent.Question {
	t.Helper()
	r.until(t, func() bool { return r.End != nil || len(r.Questions) == n })
	require.Nil(t, r.End, "the turn ended without question %d", n)
	return r.Questions[n-1]
}

func (r *run) finish(t *testing.T) {
	t.Helper()
	r.until(t, func() bool { return r.End != nil })
}

// turn runs a prompt to its end and answers its questions; there must be as many questions as
// answers.
func (d *desk) turn(t *testing.T, content string, answers ...agent.Answer) *run {
	t.Helper()
	r := d.prompt(t, content)
	for i, a := range answers {
		d.answer(t, r.asked(t, i+1), a)
	}
	r.until(t, func() bool { return r.End != nil || len(r.Questions) > len(answers) })
	require.Len(t, r.Questions, len(answers))
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	for i, q := range r.Questions {
		require.Equal(t, q.ID, r.Resolved[i])
	}
	return r
}

// of returns the turn's blocks of a type in the main conversation.
func (r *run) of(kind conversation.BlockType) []conversation.Block {
	var f conversation.Folder
	for _, e := range r.Events {
		f.Add(e)
	}
	var found []conversation.Block
	for _, b := range f.Conversation().Threads[0].Blocks {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	return found
}

func (r *run) only(t *testing.T, kind conversation.BlockType) conversation.Block {
	t.Helper()
	found := r.of(kind)
	require.Len(t, found, 1)
	return found[0]
}

// agree compares the transcript with the stream.
func (d *desk) agree(t *testing.T) {
	t.Helper()
	parsed, err := demo.New().Parse(d.files(t))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(parsed, d.folder.Conversation()), "- parsed, + streamed")
}

func (d *desk) files(t *testing.T) []transcript.File {
	t.Helper()
	var files []transcript.File
	for _, pattern := range d.launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, transcript.File{Path: name, Data: data})
		}
	}
	return files
}

var (
	once     = agent.Answer{Decision: agent.DecisionOnce}
	forNow   = agent.Answer{Decision: agent.DecisionSession}
	forGood  = agent.Answer{Decision: agent.DecisionAlways}
	rejected = agent.Answer{Decision: agent.DecisionReject, Message: "not now"}
)

func TestPermissionIsRequested(t *testing.T) {
	t.Parallel()
	d := newDesk(t, permission.Rules{Default: permission.Ask})
	file := filepath.Join(d.workspace, "f")

	no := d.turn(t, "$ echo one >>f\nstill here", rejected)
	require.NoFileExists(t, file)
	require.Equal(t, conversation.Failed, no.only(t, conversation.ToolUse).Status)
	require.Equal(t, `"not now"`, string(no.only(t, conversation.ToolResult).Output))
	require.True(t, no.only(t, conversation.ToolResult).IsError)
	require.Equal(t, "still here", no.only(t, conversation.AssistantText).Content)
	q := no.Questions[0]
	require.Equal(t, agent.Question{
		ID: q.ID, Kind: agent.Permission, ToolName: "shell", ToolUseID: no.only(t, conversation.ToolUse).ID,
		Input: []byte(`{"command":"echo one \u003e\u003ef"}`), Title: "Run echo one >>f",
	}, q)

	silent := d.turn(t, "write f: two", agent.Answer{Decision: agent.DecisionReject})
	require.Contains(t, string(silent.only(t, conversation.ToolResult).Output), "does not allow")

	r := d.prompt(t, "$ echo one >>f")
	q = r.asked(t, 1)
	require.Empty(t, r.Resolved)
	require.Equal(t, conversation.Pending, r.only(t, conversation.ToolUse).Status, "it does not run yet")
	require.NoFileExists(t, file)
	d.answer(t, q, once)
	r.finish(t)
	require.Equal(t, []string{q.ID}, r.Resolved)
	require.Equal(t, conversation.Success, r.only(t, conversation.ToolUse).Status)
	require.FileExists(t, file)

	d.turn(t, "$ true\n$ true\nsubagent bob: $ true", once, forNow)
	d.turn(t, "$ true\nwrite g: x", once) // shell no longer asks, write does
	d.turn(t, "subagent bob: write g: x\nwrite g: y", once, once)
	d.stop(t)
	d.agree(t)
}

func TestPermissionScopes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, permission.Rules{Default: permission.Ask})
	d.turn(t, "$ true\nwrite f: x", forNow, forGood)
	d.turn(t, "$ true\nwrite f: x")
	d.stop(t)

	d.start(t)
	d.turn(t, "write f: x\n$ true", once)
	d.stop(t)

	home := t.TempDir() // contains only the followed files
	for _, f := range d.files(t) {
		name, err := filepath.Rel(d.home, f.Path)
		require.NoError(t, err)
		name = filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, f.Data, 0o600))
	}
	d.home = home
	d.start(t)
	d.turn(t, "write f: x\n$ true", once)
	d.stop(t)

	d.permissions.Tools = map[string]permission.Policy{"write": permission.Deny}
	d.start(t)
	d.turn(t, "write f: x", rejected) // the denial overrides the earlier permission
	d.turn(t, "write f: x", rejected)
	d.stop(t)
	d.agree(t)
}

func TestAllowedToolsAreNotAsked(t *testing.T) {
	t.Parallel()
	ask, allow, deny := permission.Ask, permission.Allow, permission.Deny
	for name, c := range map[string]struct {
		permissions permission.Rules
		flags       []string
		questions   []agent.Answer
	}{
		"free":           {},
		"others ask":     {permissions: permission.Rules{Tools: map[string]permission.Policy{"other": ask}}},
		"all but shell":  {permission.Rules{Default: ask, Tools: map[string]permission.Policy{"shell": allow}}, []string{"--ask", "write"}, []agent.Answer{rejected}},
		"shell alone":    {permission.Rules{Tools: map[string]permission.Policy{"shell": ask}}, []string{"--ask", "shell"}, []agent.Answer{rejected}},
		"all":            {permission.Rules{Default: ask}, []string{"--ask", "shell,write"}, []agent.Answer{rejected, once}},
		"nothing may":    {permission.Rules{Default: deny}, []string{"--ask-every-time", "shell,write"}, []agent.Answer{rejected, rejected}},
		"shell may not":  {permission.Rules{Default: ask, Tools: map[string]permission.Policy{"shell": deny}}, []string{"--ask", "write", "--ask-every-time", "shell"}, []agent.Answer{rejected, once}},
		"write only may": {permission.Rules{Default: deny, Tools: map[string]permission.Policy{"write": allow}}, []string{"--ask-every-time", "shell"}, []agent.Answer{rejected}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, c.permissions)
			require.Equal(t, append([]string{"/overwinter/bin/overwinter-runner", demo.Command, "--session", d.session}, c.flags...), d.launch.Argv)
			d.turn(t, "$ true\nwrite f: x\nsleep 1ms\nsubagent shell: hello", c.questions...)
			d.stop(t)
			d.agree(t)
		})
	}
}

func TestUserQuestionIsAsked(t *testing.T) {
	t.Parallel()
	d := newDesk(t, permission.Rules{})
	r := d.prompt(t, "ask: Which colour? | Red | Blue")
	q := r.asked(t, 1)
	call := r.only(t, conversation.ToolUse)
	require.Equal(t, conversation.Running, call.Status)
	require.Equal(t, agent.Question{
		ID: q.ID, Kind: agent.Inquiry, ToolName: "ask", ToolUseID: call.ID,
		Input: []byte(`{"question":"Which colour?","options":["Red","Blue"]}`), Title: "Which colour?",
		Inquiries: []agent.InquiryItem{{Question: "Which colour?", Options: []agent.InquiryOption{{Label: "Red"}, {Label: "Blue"}}}},
	}, q)
	d.answer(t, q, agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Which colour?": "Green"})})
	r.finish(t)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.Equal(t, []string{q.ID}, r.Resolved)
	require.Equal(t, `"Green"`, string(r.only(t, conversation.ToolResult).Output))
	require.Empty(t, r.of(conversation.AssistantText), "the agent writes no more text")

	no := d.turn(t, "ask: And why?\nwell then", rejected)
	require.Equal(t, `"not now"`, string(no.only(t, conversation.ToolResult).Output))
	require.Equal(t, conversation.Failed, no.only(t, conversation.ToolUse).Status)
	require.Equal(t, "well then", no.only(t, conversation.AssistantText).Content)

	sub := d.turn(t, "subagent bob: ask: Who?", agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Who?": "Bob"})})
	require.Equal(t, `"Bob"`, string(sub.only(t, conversation.ToolResult).Output))
	d.stop(t)
	d.agree(t)
}

func TestOnlyFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	d := newDesk(t, permission.Rules{Default: permission.Ask})
	r := d.prompt(t, "$ echo one >>f\n$ echo two >>f")
	first := r.asked(t, 1)
	stray := first
	stray.ID = "another"
	d.answer(t, stray, once)
	d.answer(t, first, rejected)
	d.answer(t, first, rejected)
	d.answer(t, first, once)
	second := r.asked(t, 2)
	d.answer(t, first, rejected)
	d.answer(t, second, once)
	d.answer(t, second, rejected)
	r.finish(t)
	require.Equal(t, []string{first.ID, second.ID}, r.Resolved)
	data, err := os.ReadFile(filepath.Join(d.workspace, "f"))
	require.NoError(t, err)
	require.Equal(t, "two\n", string(data))
	d.stop(t)
	d.agree(t)
}

func TestInterruptEndsWaitingTurn(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"permission": "$ echo never >f\nnot reached",
		"question":   "ask: Well? | Yes\nnot reached",
		"subagent":   "subagent bob: write f: never\nnot reached",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, permission.Rules{Default: permission.Ask})
			r := d.prompt(t, content)
			q := r.asked(t, 1)
			d.write(t, demo.New().Interrupt(r.id).Stdin)
			r.finish(t)
			require.Equal(t, session.OutcomeCancelled, r.End.Outcome)
			require.Equal(t, session.ReasonAborted, r.End.Reason)
			require.Equal(t, []string{q.ID}, r.Resolved)
			require.Equal(t, conversation.Aborted, r.only(t, conversation.ToolResult).Status)
			require.Empty(t, r.of(conversation.AssistantText))
			late := agent.Answer{Decision: agent.DecisionOnce}
			if q.Kind == agent.Inquiry {
				late.Answers = question.TextEach(map[string]string{"Well?": "Yes"})
			}
			d.answer(t, q, late)
			d.turn(t, "write g: usable", once)
			require.NoFileExists(t, filepath.Join(d.workspace, "f"))
			d.stop(t)
			d.agree(t)
		})
	}
}

func TestProcessExitEndsQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t, permission.Rules{Default: permission.Ask})
	r := d.prompt(t, "write f: never")
	q := r.asked(t, 1)
	require.NoError(t, d.cmd.Process.Kill())
	r.finish(t)
	require.Equal(t, session.ReasonAgentCrashed, r.End.Reason)
	require.Equal(t, []string{q.ID}, r.Resolved)
	require.Equal(t, conversation.Aborted, r.only(t, conversation.ToolUse).Status)

	d.start(t)
	r = d.prompt(t, "ask: Well?\nwrite f: never\ngood bye")
	r.asked(t, 1)
	require.NoError(t, d.stdin.Close())
	r.finish(t)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.Len(t, r.Questions, 2)
	require.Len(t, r.Resolved, 2)
	require.Equal(t, "good bye", r.only(t, conversation.AssistantText).Content)
	for _, b := range r.of(conversation.ToolResult) {
		require.Contains(t, string(b.Output), "stdin has ended")
	}
	require.NoFileExists(t, filepath.Join(d.workspace, "f"))
	for range d.frames { // until it has exited
	}
	d.agree(t)
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	t.Parallel()
	asked := agent.Question{ID: "q", Kind: agent.Permission, ToolName: "shell"}
	inquiry := agent.Question{ID: "q", Kind: agent.Inquiry, Inquiries: []agent.InquiryItem{{Question: "Well?"}}}
	said := question.TextEach(map[string]string{"Well?": "Yes"})
	for _, c := range []struct {
		question agent.Question
		answer   agent.Answer
		fits     bool
	}{
		{asked, once, true},
		{asked, forNow, true},
		{asked, forGood, true},
		{asked, rejected, true},
		{asked, agent.Answer{}, false},
		{asked, agent.Answer{Decision: "perhaps"}, false},
		{asked, agent.Answer{Decision: agent.DecisionOnce, Answers: said}, false},
		{agent.Question{Kind: agent.Permission}, once, false},
		{inquiry, agent.Answer{Decision: agent.DecisionOnce, Answers: said}, true},
		{inquiry, rejected, true},
		{inquiry, once, false},
		{inquiry, agent.Answer{Decision: agent.DecisionAlways, Answers: said}, false},
		{inquiry, agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Well?": "Yes", "Who?": "Me"})}, false},
	} {
		data, err := demo.New().Answer(c.question, c.answer)
		if !c.fits {
			require.Error(t, err, "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, byte('\n'), data[len(data)-1])
	}
}
