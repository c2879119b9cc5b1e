package turn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptImagesAreOfSupportedTypes(t *testing.T) {
	t.Parallel()
	file := func(name, kind string) attachment.Attachment {
		return attachment.Attachment{Info: attachment.Info{Name: name, MediaType: kind, Bytes: 3}}
	}
	p := session.Prompt{ID: "p1", Content: "look", Attachments: []attachment.Attachment{
		file("a.png", "image/png"), file("b.svg", "image/svg+xml"), file("c.txt", "text/plain"), file("d", "image/webp"),
	}}
	require.Equal(t, []agent.Image{
		{Path: "/workspace/.overwinter/attachments/p1/a.png", MediaType: "image/png"}, {Path: "/workspace/.overwinter/attachments/p1/d", MediaType: "image/webp"},
	}, imagesOf(p))
	require.Equal(t, `look

Attached files, relative to the workspace:
- .overwinter/attachments/p1/a.png (image/png, 3 bytes)
- .overwinter/attachments/p1/b.svg (image/svg+xml, 3 bytes)
- .overwinter/attachments/p1/c.txt (text/plain, 3 bytes)
- .overwinter/attachments/p1/d (image/webp, 3 bytes)`, withAttachments(p))
	p.Attachments = nil
	require.Nil(t, imagesOf(p))
	require.Equal(t, "look", withAttachments(p))
}
