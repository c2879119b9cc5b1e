package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionAttachmentCmd prints an attachment of a session. It does not wake the session.
type sessionAttachmentCmd struct {
	sessionArg
	Attachment string `arg:"" help:"ID of the attachment, such as att_…, from a prompt or the images of a block."`
}

// Run prints the bytes.
func (c *sessionAttachmentCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		data, err := api.AttachmentGet(ctx, id, c.Attachment)
		if err != nil {
			return err
		}
		return printFile(s.stdout, data)
	})
}
