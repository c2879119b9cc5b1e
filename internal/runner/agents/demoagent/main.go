package demoagent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/rawio"
)

// Exit codes of the agent.
const (
	ExitDone   = 0 // stdin is closed and all prompts are done
	ExitFailed = 1 // the transcript or stdout cannot be written
	ExitUsage  = 2
	exitCrash  = 3 // requested by the script
)

// Main runs the agent: it serves prompts from stdin until stdin is closed and returns the exit
// code. The workspace is the working directory, the transcript is below $HOME. args are the flags
// after the subcommand.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	workspace, err := os.Getwd()
	if err != nil {
		fmt.Fprintf(stderr, "demo agent: %v\n", err)
		return ExitFailed
	}
	if pipe := rawio.Unblock(stdout); pipe != nil {
		defer pipe.Close() // a close after the last write
		stdout = rawio.NewWriter(pipe)
	}
	p := Agent{
		Home: os.Getenv("HOME"), Workspace: workspace, Stdout: stdout, Stderr: stderr, Model: demoformat.Name,
		Now:   time.Now,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
		tools: stdio.DecodeTools(os.Getenv(stdio.EnvTools)),
	}
	return p.Run(args, stdin)
}

// Agent is the agent's process with its dependencies.
type Agent struct {
	Home, Workspace string
	Stdout, Stderr  io.Writer
	Now             func() time.Time
	NewID           func() string

	Model  string
	asking []string // tools that ask before they run, until they are allowed
	denied []string // tools that ask before every run, whatever the earlier answers
	tools  []string // command line of the server of overwinter's tools; nil without one
	memory *memory
	inbox  *inbox

	sleeper *sleeper
}

// errCrash ends the process in the middle of a turn.
var errCrash = errors.New("crash")

// Run runs the agent with these arguments until stdin is closed, and returns the exit code.
func (p *Agent) Run(args []string, stdin io.Reader) int {
	flags := flag.NewFlagSet(demoformat.Command, flag.ContinueOnError)
	flags.SetOutput(p.Stderr)
	id := flags.String("session", "", "id of the session, which names the transcript")
	flags.StringVar(&p.Model, "model", p.Model, "model to report")
	resume := flags.Bool("resume", false, "continue from an existing transcript")
	asking := flags.String("ask", "", "tools that ask before they run, until they are allowed; separated by commas")
	denied := flags.String("ask-every-time", "", "tools that ask before they run, whatever they were answered before; separated by commas")
	if err := flags.Parse(args); err != nil {
		return ExitUsage
	}
	if !stdio.SessionID.MatchString(*id) || flags.NArg() > 0 || p.Home == "" {
		fmt.Fprintf(p.Stderr, "demo agent: --session, $HOME and nothing else are needed\n")
		return ExitUsage
	}
	p.asking, p.denied = strings.Split(*asking, ","), strings.Split(*denied, ",")
	m, err := openMemory(demoformat.TranscriptDir(p.Home, *id))
	if err != nil {
		fmt.Fprintf(p.Stderr, "demo agent: %v\n", err)
		return ExitFailed
	}
	p.memory = m
	if *resume && len(m.known) == 0 {
		fmt.Fprintf(p.Stderr, "demo agent: asked to resume, but %s knows no prompt\n", m.file.Name())
	}
	p.sleeper = newSleeper()
	defer p.sleeper.close()
	code := p.serve(stdin)
	if err := m.close(); err != nil && code == ExitDone {
		fmt.Fprintf(p.Stderr, "demo agent: close transcript: %v\n", err)
		return ExitFailed
	}
	return code
}

// serve executes one prompt after the other. The reader of stdin ends with stdin or, after a crash,
// with the process.
func (p *Agent) serve(stdin io.Reader) int {
	p.inbox = newInbox()
	go p.inbox.read(stdin, p.Stderr)
	for {
		d := p.inbox.next()
		if d == nil {
			return ExitDone
		}
		err := p.deliver(d)
		if errors.Is(err, errCrash) {
			fmt.Fprintln(p.Stderr, "demo agent: crashing, as the script says")
			return exitCrash
		}
		if err != nil {
			fmt.Fprintf(p.Stderr, "demo agent: %v\n", err)
			return ExitFailed
		}
	}
}
