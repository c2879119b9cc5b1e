package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
)

// sessionAttachmentCmd prints what is stored with a session. It wakes no session.
type sessionAttachmentCmd struct {
	sessionArg
	Attachment string `arg:"" help:"ID of the attachment, such as att_…, from a prompt or the images of a block."`
}

// Run prints the bytes.
func (c *sessionAttachmentCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(client *apiclient.Client, id string) error {
		data, err := client.AttachmentGet(ctx, id, c.Attachment)
		if err != nil {
			return err
		}
		return printFile(s.stdout, data)
	})
}
