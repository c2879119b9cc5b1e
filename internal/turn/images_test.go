package turn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// carrier is an agent whose prompts contain the bytes of images.
type carrier struct {
	demo.Adapter
	images chan []agent.Image
}

func (c carrier) CarriesImages(content string) int64 { return int64(len(content)) }

func (c carrier) Prompt(in agent.PromptInput) ([]byte, error) {
	c.images <- in.Images
	return c.Adapter.Prompt(in)
}

func TestImagesAreSentUpToLimit(t *testing.T) {
	t.Parallel()
	file := func(name, kind string, size int) attachment.Attachment {
		text := strings.Repeat("x", size)
		return attachment.Attachment{
			Info: attachment.Info{ID: conversation.AttachmentID([]byte(text), name), Name: name, MediaType: kind, Bytes: int64(size)}, Data: []byte(text),
		}
	}
	images := make(chan []agent.Image, 1)
	st := setup(t, script{frames: []string{endsTurn}, agent: carrier{images: images}, attachments: []attachment.Attachment{
		file("a", "image/png", 10), file("b", "text/plain", 10), file("c", "image/png", 1000), file("d", "image/gif", 10),
	}})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	got := <-images
	require.Len(t, got, 3)
	require.Len(t, got[0].Data, 10)
	require.Empty(t, got[1].Data, "it is too large")
	require.Len(t, got[2].Data, 10)
}
