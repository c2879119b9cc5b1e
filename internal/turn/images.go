package turn

import (
	"bytes"
	"context"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// imageStore stores images in results of tools.
type imageStore interface {
	// AttachmentsAppend stores attachments; those that are stored already are skipped.
	AttachmentsAppend(ctx context.Context, b attachment.Batch) error
}

// kept returns the images of a frame that are within the limits. The limiter marks the blocks that
// name other images.
func (c *convert) kept(images []conversation.ImageData) []attachment.Attachment {
	var out []attachment.Attachment
	for _, i := range images {
		if masked := c.masking.masker.Bytes(i.Data); !bytes.Equal(masked, i.Data) {
			continue // part of an image cannot be masked
		}
		if c.limits.Keep(i.Image) {
			out = append(out, attachment.Attachment{
				Info: attachment.Info{ID: i.ID, MediaType: i.MediaType, Bytes: i.Bytes}, Data: i.Data,
			})
		}
	}
	return out
}

// storeImages stores the images of a batch before the events that name them, so a reader never
// finds a name without its image. If the attempt is lost between the two, the next one stores the
// images again.
func (a *attempt) storeImages(ctx context.Context, b *batch) error {
	if len(b.images) == 0 {
		return nil
	}
	err := a.Store.AttachmentsAppend(ctx, attachment.Batch{
		SessionID: a.in.SessionID, RunID: a.in.RunID, Generation: a.in.Generation, Token: a.token, Attachments: b.images,
	})
	if err == nil {
		a.progress.Made()
	}
	return kept(err)
}
