package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// remedies maps errors of the API, whose details name HTTP requests, to the commands that help.
var remedies = map[client.Code]string{
	client.CodeSecretMissing: "overwinter secret set NAME stores one",
	client.CodeInError:       "overwinter session recover ID retries, after session update if necessary",
}

// Exit codes of the program.
const (
	exitDone    = 0 // the command succeeded
	exitFailed  = 1 // the command failed
	exitUsage   = 2 // the command line is invalid
	exitTimeout = 3 // --timeout elapsed first
)

// program is one run of overwinter. It is a value so that a test can start it in its own process.
type program struct {
	args   []string // without the program's name
	stdin  io.Reader
	stdout io.Writer // data
	stderr io.Writer // logs and errors
	// protect prevents other processes from reading this one, for commands that hold secrets.
	// Default: no protection.
	protect func() error
}

// secretive are the commands that hold secrets.
var secretive = []string{"api", "worker", "dev", "secret rotate"}

// commands has the flags and subcommands of the program.
type commands struct {
	LogLevel  slog.Level `group:"Log flags" env:"OVERWINTER_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Minimum log level: debug, info, warn or error. Default ${default}."`
	LogFormat string     `group:"Log flags" env:"OVERWINTER_LOG_FORMAT" default:"text" enum:"text,json" placeholder:"FORMAT" help:"Log format: text or json. Default ${default}."`

	Dev        devCmd        `cmd:"" help:"Run the whole system on this machine."`
	Doctor     doctorCmd     `cmd:"" help:"Check what overwinter needs from this machine, and print how to fix what is missing."`
	API        apiCmd        `cmd:"" name:"api" help:"Serve the HTTP API."`
	Worker     workerCmd     `cmd:"" help:"Run workflows and activities."`
	LocalModal localModalCmd `cmd:"" help:"Serve Modal's API on this machine, for any program that uses Modal's SDK."`
	Migrate    migrateCmd    `cmd:"" help:"Manage the database schema."`
	Session    sessionCmd    `cmd:"" help:"Manage sessions through the API."`
	Run        runCmd        `cmd:"" help:"Manage runs through the API: one input to a session or a bundle, and its outcome."`
	Secret     secretCmd     `cmd:"" help:"Manage secrets through the API, and the key that encrypts them."`
	Profile    profileCmd    `cmd:"" help:"Manage profiles through the API: instructions, tools, files and permissions of agents."`
	Agent      agentCmd      `cmd:"" help:"Show the agents of the API."`
	Webhook    webhookCmd    `cmd:"" help:"Manage webhooks through the API: notifications about sessions."`
	Transcript transcriptCmd `cmd:"" help:"Read agents' transcripts and output."`
	Bundle     bundleCmd     `cmd:"" help:"Read bundles, and move them between installations as portable archives."`
	Replay     replayCmd     `cmd:"" help:"Replay the workflow of an exported session with this build, and print what happened to the session."`
	Completion completionCmd `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Version    versionCmd    `cmd:"" help:"Print the version and the commit."`
}

// streams has the standard streams of a command. Commands get the streams, the context and a
// *slog.Logger as arguments of their Run method, in any order.
type streams struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// usageError is an error in the command line that only the command itself detects. It makes the
// program exit with 2 instead of 1.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

// exited is the value with which kong panics instead of exiting, for example after --help.
type exited int

// Run parses the arguments, runs the command until it returns or ctx ends, and returns the exit
// code. An error is printed on stderr as one line.
func (p program) Run(ctx context.Context) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exited:
			code = int(r)
		default:
			panic(r)
		}
	}()

	var c commands
	parser, err := c.parser(defaultDataDir(),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
	)
	if err != nil {
		return p.fail(exitFailed, fmt.Errorf("define flags: %w", err))
	}
	command, err := parser.Parse(p.args)
	if err != nil {
		return p.fail(exitUsage, err)
	}

	if p.protect != nil && slices.Contains(secretive, command.Command()) {
		if err := p.protect(); err != nil {
			return p.fail(exitFailed, err)
		}
	}
	command.BindTo(ctx, (*context.Context)(nil))
	logger := p.logger(&c)
	if flags := apiFlagsOf(command); flags != nil {
		flags.warnPlain(logger)
	}
	command.Bind(parser)
	err = command.Run(logger, streams{stdin: p.stdin, stdout: p.stdout, stderr: p.stderr}, &c)
	var usage usageError
	var timeout timeoutError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &timeout):
		return p.fail(exitTimeout, err)
	case errors.As(err, &usage):
		return p.fail(exitUsage, err)
	default:
		return p.fail(exitFailed, err)
	}
}

// parser returns the parser that fills c. dataDir is the default of directory flags.
func (c *commands) parser(dataDir string, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(c, append(options,
		kong.Name("overwinter"),
		kong.Description("Keeps coding-agent sessions alive: they work in sandboxes, sleep when idle and wake where they left off."),
		kong.Vars{"data_dir": dataDir, "sandbox_network": string(box.DefaultNetwork)},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)...)
}

// fail prints the error on one line and returns the code.
func (p program) fail(code int, err error) int {
	var message strings.Builder
	for line := range strings.Lines(err.Error()) {
		if before := message.String(); strings.HasSuffix(before, ":") {
			message.WriteString(" ")
		} else if before != "" {
			message.WriteString("; ")
		}
		message.WriteString(strings.TrimSpace(line))
	}
	if problem, ok := errors.AsType[*client.Error](err); ok && remedies[problem.Code] != "" {
		message.WriteString("; " + remedies[problem.Code])
	}
	_, _ = fmt.Fprintf(p.stderr, "overwinter: %s\n", &message) // the exit code also reports the error
	return code
}

// logger returns a logger to stderr with the level and format of the flags.
func (p program) logger(c *commands) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: inMilliseconds}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(p.stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.stderr, options))
}

// inMilliseconds writes a duration as a number of milliseconds under a key that ends in _ms.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1000)
}
