package main

import (
	"context"
	"errors"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionAttachCmd shows a conversation and sends typed prompts.
type sessionAttachCmd struct {
	sessionArg
	viewFlags
	Last int `default:"20" placeholder:"N" help:"Number of blocks of the conversation to show first. Default ${default}."`
}

// Help explains the accepted input.
func (c *sessionAttachCmd) Help() string {
	return `In a terminal, a line is a prompt or the answer to the agent's question; /help lists the commands. Ctrl-C interrupts
the current turn; pressed again it leaves the session, which continues.

If standard input is not a terminal, each of its lines is a prompt. The answers are printed as the agent writes them,
with -o json as one line of JSON each, with the prompt. The command returns when all prompts have ended, and fails if one
was not completed.

A line that ends in a backslash continues in the next line. The lines between two lines of """ are one prompt.`
}

// Validate checks what kong cannot.
func (c *sessionAttachCmd) Validate() error {
	if c.Last < 0 {
		return errors.New("--last must not be negative")
	}
	return nil
}

// Run returns when the user leaves or all input has been answered.
func (c *sessionAttachCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		if !cli.IsTerminal(s.stdin) {
			return cli.Script(ctx, api, s.stdin, s.stdout, cli.ScriptOptions{SessionID: id, JSON: parent.json(), Notes: s.stderr})
		}
		if parent.json() {
			return usageError{"-o json is for prompts that are not typed in a terminal"}
		}
		return cli.Attach(ctx, api, s.stdin, s.stdout, cli.AttachOptions{SessionID: id, Last: c.Last, View: c.view()})
	})
}

// viewFlags choose how a conversation is displayed.
type viewFlags struct {
	Plain bool `help:"Print plain text without terminal control, also in a terminal."`
	Full  bool `help:"Show tool inputs and results in full."`
	Times bool `help:"Prefix lines with the time."`
}

func (f viewFlags) view() cli.View { return cli.View{Plain: f.Plain, Full: f.Full, Times: f.Times} }
