// Overwinter-runner runs inside a sandbox: as its entry command it owns the agent, and by exec it
// connects a worker to it. Package runner describes the protocol. Prompts, secrets and tokens are
// passed on stdin, never in argv.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/agents"
	"github.com/overwinter-dev/overwinter/internal/runner/command"
	"github.com/overwinter-dev/overwinter/internal/runner/server"
	"github.com/overwinter-dev/overwinter/internal/runner/tools"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// commands of the program.
var commands = []struct {
	name, help string
	make       func() any
}{
	{"serve", "Run the sandbox's agent and keep its journal. The sandbox's entry command.", func() any { return &serveCmd{} }},
	{"attach", "Connect stdin and stdout to a run.", func() any { return &attachCmd{} }},
	{"abort", "Interrupt the turn of a run; reads the request from stdin.", func() any { return &abortCmd{} }},
	{"seal", "Stop the agent, flush everything to disk and print the manifest; reads the request from stdin.", func() any { return &sealCmd{} }},
	{"verify", "Compare the sandbox with the manifest on stdin.", func() any { return &verifyCmd{} }},
	{"put", "Write the files that stdin describes.", func() any { return &putCmd{} }},
	{"pack", "Print a portable archive of the workspace and the agent's own files; reads the request from stdin.", func() any { return &packCmd{} }},
	{"unpack", "Write the portable archive on stdin into the workspace and the agent's home.", func() any { return &unpackCmd{} }},
	{"ping", "Print the runner's state; reads the request from stdin.", func() any { return &pingCmd{} }},
	{
		"tools", "Serve overwinter's tools to an agent on stdin and stdout, as a server of the Model Context Protocol.",
		func() any { return &toolsCmd{} },
	},
}

// grammar returns the command that args begin with, or all commands if they begin with none. The program starts
// several times in every wake, and the grammar of all commands would take a fifth of a start.
func grammar(args []string) []kong.Option {
	var all []kong.Option
	for _, c := range commands {
		option := kong.DynamicCommand(c.name, c.help, "", c.make())
		if len(args) > 0 && args[0] == c.name {
			return []kong.Option{option}
		}
		all = append(all, option)
	}
	return all
}

// state is the flag shared by all commands of a runner.
type state struct {
	Dir string `help:"State directory: socket and journals." default:"${state}" type:"path"`
}

type serveCmd struct {
	state
	Home      string        `help:"The agent's home directory." default:"${home}" type:"path"`
	Workspace string        `help:"The agent's working directory, whose files are watched." default:"${workspace}" type:"path"`
	MaxPause  time.Duration `help:"How long the agent waits for a worker that handles none of its output. Default ${default}." default:"20s"`
}

type attachCmd struct {
	state
	ID   string `name:"run" help:"Run to attach to; must match the hello on stdin." required:""`
	From int64  `help:"First frame to send; must match the hello on stdin." default:"0"`
}

type abortCmd struct {
	state
	ID string `name:"run" help:"Run to interrupt; must match the request on stdin." required:""`
}

type sealCmd struct{ state }

type verifyCmd struct{}

type putCmd struct{}

type packCmd struct {
	state
	Workspace string `help:"The agent's working directory." default:"${workspace}" type:"path"`
}

type unpackCmd struct {
	state
	Home      string `help:"The agent's home directory." default:"${home}" type:"path"`
	Workspace string `help:"The agent's working directory." default:"${workspace}" type:"path"`
	Archive   string `help:"ID of the archive; it is unpacked once." required:""`
}

type pingCmd struct{ state }

type toolsCmd struct{ state }

var tokenHash = lazyregexp.New(`^[0-9a-f]{64}$`)

func (c *serveCmd) Run(ctx context.Context, p *program) error {
	hash := os.Getenv(runner.TokenVariable)
	if err := os.Unsetenv(runner.TokenVariable); err != nil {
		return err
	}
	if !tokenHash.MatchString(hash) {
		return &command.ExitError{
			ExitCode: runner.ExitUsage,
			Err:      fmt.Errorf("%s must hold the SHA-256 of the token as 64 hexadecimal digits", runner.TokenVariable),
		}
	}
	return server.Serve(ctx, server.Config{
		Dir: c.Dir, Home: c.Home, Workspace: c.Workspace, TokenHash: hash, Logger: slog.New(slog.NewJSONHandler(p.stderr, nil)),
		MaxPause: c.MaxPause,
	})
}

func (c *attachCmd) Run(ctx context.Context, p *program) error {
	return command.Attach(ctx, c.Dir, c.ID, c.From, p.stdin, p.stdout)
}

func (c *abortCmd) Run(ctx context.Context, p *program) error {
	return command.Abort(ctx, c.Dir, c.ID, p.stdin, p.stdout)
}

func (c *sealCmd) Run(ctx context.Context, p *program) error {
	runtime.GOMAXPROCS(workspace.Listers) // a session waits for its scan of the workspace
	return command.Seal(ctx, c.Dir, p.stdin, p.stdout)
}

func (c *verifyCmd) Run(ctx context.Context, p *program) error {
	runtime.GOMAXPROCS(workspace.Listers) // a session waits for its scan of the workspace
	return command.Verify(ctx, p.stdin, p.stdout)
}

func (c *putCmd) Run(p *program) error { return command.Put(p.stdin, p.stdout) }

func (c *packCmd) Run(ctx context.Context, p *program) error {
	return command.Pack(ctx, c.Dir, c.Workspace, p.stdin, p.stdout)
}

func (c *unpackCmd) Run(ctx context.Context, p *program) error {
	return command.Unpack(ctx, c.Dir, c.Home, c.Workspace, c.Archive, p.stdin, p.stdout)
}

func (c *pingCmd) Run(ctx context.Context, p *program) error {
	return command.Ping(ctx, c.Dir, p.stdin, p.stdout)
}

func (c *toolsCmd) Run(ctx context.Context, p *program) error {
	return tools.Serve(ctx, runner.CallSocketPath(c.Dir), p.stdin, p.stdout)
}

// program is one invocation of the program.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run executes the command in args and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	parser, err := kong.New(&struct{}{}, append(grammar(args),
		kong.Name("overwinter-runner"),
		kong.Description("Owns the agent in a sandbox and connects workers to it."),
		kong.Vars{"state": runner.DefaultState, "home": runner.DefaultHome, "workspace": runner.DefaultWorkspace},
		kong.Writers(p.stdout, p.stderr),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)...)
	if err != nil {
		panic(err) // the commands above are invalid
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintln(p.stderr, "overwinter-runner:", err)
		return runner.ExitUsage
	}
	err = parsed.Run()
	if err == nil {
		return runner.ExitOK
	}
	_, _ = fmt.Fprintln(p.stderr, "overwinter-runner:", err)
	if exit, ok := errors.AsType[*command.ExitError](err); ok {
		return exit.ExitCode
	}
	return runner.ExitFailed
}

func main() {
	// One to three processes run for every session, and each only forwards lines. With more than
	// one processor, the scheduler would cost more than the work itself.
	runtime.GOMAXPROCS(1)
	if len(os.Args) > 1 {
		// Programs of agents parse their own flags, and receive signals like any agent.
		if main := agents.Get(os.Args[1]); main != nil {
			os.Exit(main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	os.Exit(untilSignal(&program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:]))
}

// untilSignal runs the program; SIGTERM and SIGINT stop it gracefully.
func untilSignal(p *program, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return p.run(ctx, args)
}
