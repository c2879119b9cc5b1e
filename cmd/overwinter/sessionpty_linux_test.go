package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// programArgs makes TestAsProgram run the program with these arguments, one per line.
const programArgs = "OVERWINTER_TEST_PROGRAM_ARGS"

// TestAsProgram runs main in a process that another test starts.
func TestAsProgram(t *testing.T) {
	t.Parallel()
	args, ok := os.LookupEnv(programArgs)
	if !ok {
		return
	}
	os.Args = append([]string{"overwinter"}, strings.Split(args, "\n")...)
	main()
}

// terminalOf is a program that runs in a terminal of 80 columns.
type terminalOf struct {
	t      *testing.T
	master *os.File
	done   chan struct{} // closed when the program has ended
	code   int           // set before done is closed

	mu     sync.Mutex
	output bytes.Buffer
	seen   int // position up to which await has read
}

// inTerminal starts the program as a shell does: one terminal is its input, output and controlling
// terminal.
func inTerminal(t *testing.T, args ...string) *terminalOf {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 80}))

	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestAsProgram$") // this program; it is killed at the end
	cmd.Env = append(os.Environ(), programArgs+"="+strings.Join(args, "\n"), "TERM=xterm", "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())

	p := &terminalOf{t: t, master: master, done: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		piece := make([]byte, 4096)
		for {
			n, err := master.Read(piece)
			p.mu.Lock()
			p.output.Write(piece[:n])
			p.mu.Unlock()
			if err != nil {
				return // the program has ended
			}
		}
	}()
	go func() {
		defer close(p.done)
		cmd.Wait() //nolint:errcheck // the exit code has the result
		p.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-p.done
		<-read
		master.Close()
	})
	return p
}

// await waits until the terminal has received a text after the previously awaited text.
func (p *terminalOf) await(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := strings.Index(p.output.String()[p.seen:], text)
		if i >= 0 {
			p.seen += i + len(text)
		}
		return i >= 0
	}, eventuallyTimeout, eventuallyTick, "%q is not shown", text)
}

func (p *terminalOf) keys(text string) {
	p.t.Helper()
	_, err := io.WriteString(p.master, text)
	require.NoError(p.t, err)
}

func (p *terminalOf) ends(code int) {
	p.t.Helper()
	select {
	case <-p.done:
		require.Equal(p.t, code, p.code)
	case <-time.After(eventuallyTimeout):
		require.Fail(p.t, "the program does not end")
	}
}

func TestAttachInTerminal(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running, func(s *session.Session) { s.Title = "Dormouse" })
	require.Equal(t, exitDone, run(t.Context(), "session", "prompt", id, "of before", "--wait", "--api-url", url).code)

	p := inTerminal(t, "session", "attach", id, "--api-url", url)
	p.await("Dormouse, demo, running")
	p.await("✓ ")
	p.await("of before")
	p.await("> ")
	p.keys("hello\n")
	p.await("❯ ")
	p.await("hello")
	p.await("completed")
	p.keys("one\\\ntwo\n")
	p.await("two")
	p.await("completed")
	require.Equal(t, "one\ntwo", store.Row(id).Prompts[2].Content)
	p.keys("//compact\n")
	p.await("completed")
	require.Equal(t, "/compact", store.Row(id).Prompts[3].Content)
	p.keys("/dance\n")
	p.await("unknown command /dance")

	// A question is answered at its prompt.
	asked := store.Ask(id, question.Asked{
		Kind: question.Inquiry, Title: "Which colour?",
		Inquiries: []question.Item{{Question: "Which colour?", Options: []question.Option{{Label: "Red"}, {Label: "Blue"}}}},
	}, time.Hour)
	p.await("2. Blue")
	p.await("own text> ")
	p.keys("3\n")
	p.await("there is no option 3")
	p.keys("2\n")
	p.await("answered: Which colour? Blue")
	require.Equal(t, asked, store.Row(id).Questions[0].ID)
	require.Equal(t, question.TextEach(map[string]string{"Which colour?": "Blue"}), store.Row(id).Questions[0].Answer.Answers)

	// The first Ctrl-C aborts the turn, and the second one exits.
	p.keys("wait for it\n")
	require.Eventually(t, func() bool { return len(store.Row(id).Prompts) == 5 }, eventuallyTimeout, eventuallyTick)
	waiting := store.Row(id).Prompts[4].ID
	store.With(id, func(r *apitest.Row) {
		r.Prompts[4].RunID = "run_1"
		store.Append(r, event.TypeTurnStart, event.TurnStartData{RunID: "run_1", PromptID: waiting, Attempt: 1})
	})
	store.Prompt(id, waiting, session.PromptProcessing)
	p.await("❯ ")
	p.keys("\x03")
	p.await("interrupting the turn")
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(store.Row(id).Session.Pending, func(c session.Command) bool {
			return c.Kind == session.CommandAbort && c.RunID == "run_1"
		})
	}, eventuallyTimeout, eventuallyTick)
	p.keys("\x03")
	p.ends(exitDone)
	require.Eventually(t, func() bool { return store.OpenReaders() == 0 }, eventuallyTimeout, eventuallyTick, "something is left of it at the server")
}

func TestAttachShowsSession(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running, func(s *session.Session) { s.Options.Permissions = "ask" })
	p := inTerminal(t, "session", "attach", id, "--api-url", url)
	p.await("/help lists the commands")
	p.await("> ")
	p.keys("/queue\n")
	p.await("no prompt is queued or processing")
	p.keys("wait for me\n")
	require.Eventually(t, func() bool { return len(store.Row(id).Prompts) == 1 }, eventuallyTimeout, eventuallyTick)
	p.keys("/queue\n")
	p.await("queued: wait for me")
	p.keys("/model\n")
	p.await("model: default")
	p.keys("/model fast-one\n")
	require.Eventually(t, func() bool { return store.Row(id).Session.Options.Model == "fast-one" }, eventuallyTimeout, eventuallyTick)
	p.keys("/status\n")
	p.await("status: running")
	p.await("model fast-one, permissions ask")
	p.await("1 queued, 0 processing")
	p.keys("/files\n")
	p.await("no files")
	p.keys("/diff\n")
	p.await("nothing has changed")
	store.With(id, func(r *apitest.Row) {
		r.Files = []workspacefile.Content{{Info: workspacefile.Info{Path: "a.txt", Size: 5}}}
		r.Diff = &workspacefile.Diff{FilesChanged: 1, Additions: 2, Patch: []byte("--- a\n+++ b\n" + strings.Repeat("+x\n", 60))}
	})
	p.keys("/files a\n")
	p.await("5  a.txt")
	p.keys("/diff\n")
	p.await("+++ b")
	p.await("… 23 more lines")
	p.keys("/quit\n")
	p.ends(exitDone)
}

// TestStreamedTextKeepsInputLine types a prompt and resizes the terminal while the agent
// writes.
func TestStreamedTextKeepsInputLine(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running)
	before := func(p *terminalOf) *unix.Termios {
		settings, err := unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return settings
	}
	p := inTerminal(t, "session", "attach", id, "--api-url", url)
	p.await("/help lists the commands")
	p.await("> ")
	require.Zero(t, before(p).Lflag&(unix.ECHO|unix.ICANON), "the terminal itself shows nothing")
	write := func(kind string, data any) {
		store.With(id, func(r *apitest.Row) {
			store.Append(r, kind, data)
			r.Events[len(r.Events)-1].ConversationID = conversation.Main
		})
	}
	write(string(conversation.EventBlockStart), conversation.BlockStart{Block: conversation.Block{ID: "b", Type: conversation.AssistantText, Status: conversation.Streaming}})
	write(string(conversation.EventTextDelta), conversation.TextDelta{BlockID: "b", Delta: "Once upon"})
	p.await("Once upon")
	p.await("> ")
	p.keys("half a")
	p.await("> ")
	p.await("half a")
	write(string(conversation.EventTextDelta), conversation.TextDelta{BlockID: "b", Delta: " a time"})
	p.await("\x1b[1A\x1b[9C a time\r\n") // back to the end of the text, and below it again
	p.await("half a")
	require.NoError(t, unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 60}))
	p.await("half a")
	p.keys(" linx\x7fe\n")
	require.Eventually(t, func() bool { return len(store.Row(id).Prompts) == 1 }, eventuallyTimeout, eventuallyTick)
	require.Equal(t, "half a line", store.Row(id).Prompts[0].Content)
	p.keys("/quit\n")
	p.await("/quit")
	p.ends(exitDone)
}

func TestFollowInTerminal(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	p := inTerminal(t, "session", "follow", id, "--api-url", url)
	require.Eventually(t, func() bool { return store.OpenReaders() == 1 }, eventuallyTimeout, eventuallyTick)
	store.Ask(id, question.Asked{Kind: question.Permission, Title: "Bash: rm -rf", ToolName: "Bash"}, time.Hour)
	p.await("always or reject? ")
	p.keys("reject not today\n")
	p.await("answered: reject: not today")

	// This question is answered too late. The follow continues.
	store.Ask(id, question.Asked{Kind: question.Permission, Title: "Bash: ls", ToolName: "Bash"}, -time.Second)
	p.await("always or reject? ")
	p.keys("once\n")
	p.await("the answer came too late")
	store.Status(id, session.Terminated)
	p.await("the session has ended")
	p.ends(exitDone)
}

func TestEndOfInputLeaves(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	p := inTerminal(t, "session", "attach", id, "--api-url", url)
	p.await("> ")
	p.keys("\x03")
	p.await("press Ctrl-C again to leave")
	p.keys("\x04")
	p.ends(exitDone)
}

func TestTypedSecretIsNotEchoed(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	p := inTerminal(t, "secret", "set", "OPENAI_API_KEY", "--api-url", url)
	p.await("value of OPENAI_API_KEY: ")
	p.keys("correct horse\n")
	p.await("OPENAI_API_KEY  stored")
	p.ends(exitDone)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotContains(t, p.output.String(), "horse")
	require.NotEmpty(t, store.Sealed("OPENAI_API_KEY"))
}
