package main

import (
	"cmp"
	"context"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionRevertCmd reverts a session.
type sessionRevertCmd struct {
	sessionArg
	First   string `arg:"" optional:"" name:"first" help:"ID of the first prompt to undo, the unique beginning of one, or @last for the newest. The same as --prompt."`
	Prompt  string `placeholder:"PROMPT" xor:"point" help:"Revert to the state before this prompt: an ID, the unique beginning of one, or @last for the newest."`
	Bundle  string `placeholder:"BUNDLE" xor:"point" help:"Revert to this bundle, as listed by session bundles."`
	Files   bool   `xor:"files" help:"Revert the files of the workspace too. Implied by --bundle; with a prompt, it requires a bundle that was saved directly before it."`
	NoFiles bool   `xor:"files" help:"Revert only the agent. Default with a prompt."`
	waitFlags
	Force bool `help:"Interrupt the current turn instead of waiting for it."`
}

// Validate checks what kong cannot.
func (c *sessionRevertCmd) Validate() error {
	if given := cmp.Or(c.Prompt, c.Bundle); (given == "") == (c.First == "") {
		return usageError{"name one point: a prompt, --prompt or --bundle"}
	}
	return c.waitFlags.Validate()
}

// Run sends the command and, with --wait, waits until the session is reverted.
func (c *sessionRevertCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		to := client.Revert{BundleID: c.Bundle, Force: c.Force}
		if c.Files || c.NoFiles {
			to.Files = &c.Files
		}
		if c.Bundle == "" {
			var err error
			if to.PromptID, err = promptID(ctx, api, id, cmp.Or(c.First, c.Prompt)); err != nil {
				return err
			}
		}
		return parent.execute(ctx, s, api, c.waitFlags, cli.Request{
			SessionID: id, Kind: client.RevertCommand, Force: c.Force,
			Send: func(ctx context.Context) (client.Session, bool, error) {
				got, err := api.SessionRevert(ctx, id, to)
				return got, true, err
			},
		})
	})
}
