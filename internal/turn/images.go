package turn

import (
	"bytes"
	"context"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// imageStore keeps images in results of tools.
type imageStore interface {
	// AttachmentsAppend stores attachments; those that are stored already are skipped.
	AttachmentsAppend(ctx context.Context, b attachment.Batch) error
}

// kept returns those of a frame's images that are to be stored. The blocks that name others are marked by the limiter.
func (c *convert) kept(images []conversation.ImageData) []attachment.Attachment {
	var out []attachment.Attachment
	for _, i := range images {
		if masked := c.masking.masker.Bytes(i.Data); !bytes.Equal(masked, i.Data) {
			continue // a part of an image cannot be masked
		}
		if c.limits.Keep(i.Image) {
			out = append(out, attachment.Attachment{
				Info: attachment.Info{ID: i.ID, MediaType: i.MediaType, Bytes: i.Bytes}, Data: i.Data,
			})
		}
	}
	return out
}

// storeImages stores the images of a batch before the events that name them: no reader finds a name without an image. An attempt
// that is lost between the two leaves images that the next one stores again.
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
