package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Exit codes of the agent.
const (
	exitDone   = 0 // stdin ended and everything is done
	exitFailed = 1 // the transcript or stdout cannot be written
	exitUsage  = 2
	exitCrash  = 3 // the script said so
)

// Main is the agent: it serves prompts from stdin until it ends and returns the exit code. The
// workspace is the working directory, the transcript is under $HOME. args are the flags after the
// sub-command.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	workspace, err := os.Getwd()
	if err != nil {
		fmt.Fprintf(stderr, "demo agent: %v\n", err)
		return exitFailed
	}
	p := program{
		home: os.Getenv("HOME"), workspace: workspace, stdout: stdout, stderr: stderr, model: Name,
		now:   time.Now,
		newID: func() string { return uuid.Must(uuid.NewV7()).String() },
	}
	return p.main(args, stdin)
}

// program is the agent's process with what it takes from outside.
type program struct {
	home, workspace string
	stdout, stderr  io.Writer
	now             func() time.Time
	newID           func() string

	model  string
	asking []string // tools that ask before they run, until they are allowed
	denied []string // tools that ask before they run whatever they were answered before
	memory *memory
	inbox  *inbox
}

// errCrash ends the process in the middle of a turn.
var errCrash = errors.New("crash")

func (p *program) main(args []string, stdin io.Reader) int {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	id := flags.String("session", "", "id of the session, which names the transcript")
	flags.StringVar(&p.model, "model", p.model, "model to report")
	resume := flags.Bool("resume", false, "continue from an existing transcript")
	asking := flags.String("ask", "", "tools that ask before they run, until they are allowed; separated by commas")
	denied := flags.String("ask-every-time", "", "tools that ask before they run, whatever they were answered before; separated by commas")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if !sessionID.MatchString(*id) || flags.NArg() > 0 || p.home == "" {
		fmt.Fprintf(p.stderr, "demo agent: --session, $HOME and nothing else are needed\n")
		return exitUsage
	}
	p.asking, p.denied = strings.Split(*asking, ","), strings.Split(*denied, ",")
	m, err := openMemory(transcriptDir(p.home, *id))
	if err != nil {
		fmt.Fprintf(p.stderr, "demo agent: %v\n", err)
		return exitFailed
	}
	p.memory = m
	if *resume && len(m.known) == 0 {
		fmt.Fprintf(p.stderr, "demo agent: asked to resume, but %s knows no prompt\n", m.file.Name())
	}
	code := p.serve(stdin)
	if err := m.close(); err != nil && code == exitDone {
		fmt.Fprintf(p.stderr, "demo agent: close transcript: %v\n", err)
		return exitFailed
	}
	return code
}

// serve does one prompt after the other. The reader of stdin ends with stdin or, after a crash,
// with the process.
func (p *program) serve(stdin io.Reader) int {
	p.inbox = newInbox()
	go p.inbox.read(stdin, p.stderr)
	for {
		d := p.inbox.next()
		if d == nil {
			return exitDone
		}
		err := p.deliver(d)
		if errors.Is(err, errCrash) {
			fmt.Fprintln(p.stderr, "demo agent: crashing, as the script says")
			return exitCrash
		}
		if err != nil {
			fmt.Fprintf(p.stderr, "demo agent: %v\n", err)
			return exitFailed
		}
	}
}
