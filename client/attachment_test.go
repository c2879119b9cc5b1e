package client_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptIsSentWithItsFiles(t *testing.T) {
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

func TestSessionIsCreatedWithFilesOfItsFirstPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	create := client.Create{Agent: "demo", Title: "t", Prompt: &client.FirstPrompt{Content: "read", ID: "p1", Files: []client.File{{Name: "a.txt", Data: []byte("one")}}}}
	var made [2]client.Session
	for i := range made {
		var err error
		made[i], err = b.client.SessionCreate(ctx, create, "k1")
		require.NoError(t, err)
	}
	require.Equal(t, "t", made[0].Title)
	require.Equal(t, made[0].ID, made[1].ID)
	p, err := b.client.PromptGet(ctx, made[0].ID, "p1")
	require.NoError(t, err)
	require.Equal(t, "read", p.Content)
	data, err := b.client.AttachmentGet(ctx, made[0].ID, p.Attachments[0].ID)
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
	b.store.With(made[0].ID, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: made[0].ID}, PromptID: "p1"}}
	})
	fork, err := b.client.SessionFork(ctx, made[0].ID, client.Fork{PromptID: "p1", Prompt: create.Prompt}, "")
	require.NoError(t, err)
	p, err = b.client.PromptGet(ctx, fork.ID, "p1")
	require.NoError(t, err)
	data, err = b.client.AttachmentGet(ctx, fork.ID, p.Attachments[0].ID)
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
}
