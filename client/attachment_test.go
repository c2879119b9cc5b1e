package client_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestAPromptIsSentWithItsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.store.Put(session.Running)
	prompt := client.Submit{Content: "read", ID: "p1", OnUnknown: "fail", Files: []client.File{
		{Name: "a \"b\" ü.txt", Data: []byte("one")}, {Name: "large", Data: []byte(strings.Repeat("x", attachment.MaxBytes))},
	}}
	for i := range 2 {
		submitted, err := b.client.PromptSubmit(ctx, id, prompt)
		require.NoError(t, err)
		require.Equal(t, i == 0, submitted.Created)
		require.Equal(t, client.OnUnknownFail, submitted.Prompt.OnUnknown)
		files := submitted.Prompt.Attachments
		require.Len(t, files, 2)
		require.Equal(t, "a \"b\" ü.txt", files[0].Name)
		require.Equal(t, "text/plain", strings.Split(files[0].MediaType, ";")[0])
		data, err := b.client.AttachmentGet(ctx, id, files[0].ID)
		require.NoError(t, err)
		require.Equal(t, "one", string(data))
		require.EqualValues(t, attachment.MaxBytes, files[1].Bytes)
	}
	prompt.Files[0].Data = append(prompt.Files[1].Data, 'x')
	_, err := b.client.PromptSubmit(ctx, id, prompt)
	require.ErrorContains(t, err, "attachments[0] is larger than 10485760 bytes (too_large)")
}
