package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func picture(text string) attachment.Attachment {
	data := []byte("\x89PNG\r\n\x1a\n" + text)
	return attachment.Attachment{
		Info: attachment.Info{ID: conversation.AttachmentID(data), MediaType: "image/png", Bytes: int64(len(data))}, Data: data,
	}
}

func TestImagesAreStoredOnceByTheAttemptThatHasTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "draw"))
	batch := attachment.Batch{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", Attachments: []attachment.Attachment{picture("one"), picture("two"), picture("one")}}
	for range 2 {
		require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	}
	got, err := b.AttachmentGet(b.ctx, b.id, picture("two").ID)
	require.NoError(t, err)
	require.Equal(t, picture("two"), got)

	_, err = b.AttachmentGet(b.ctx, b.id, picture("three").ID)
	requireCode(t, failure.NoAttachment, err)
	_, err = b.AttachmentGet(b.ctx, session.NewID(session.SessionPrefix), picture("two").ID)
	requireCode(t, failure.NoSession, err)
	_, err = b.AttachmentGet(b.ctx, b.session(t), picture("two").ID)
	requireCode(t, failure.NoAttachment, err)

	batch.Attachments = []attachment.Attachment{picture("three")}
	batch.Token = "another"
	require.ErrorIs(t, b.AttachmentsAppend(b.ctx, batch), eventlog.ErrFenced)
	batch.Token, batch.Generation = "t1", 0
	require.ErrorIs(t, b.AttachmentsAppend(b.ctx, batch), eventlog.ErrFenced)
	_, err = b.AttachmentGet(b.ctx, b.id, picture("three").ID)
	requireCode(t, failure.NoAttachment, err)
}

func TestImagesBeyondTheBoundOfASessionAreNotStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "draw"))
	b.sql(t, "INSERT INTO attachments (session_id, id, origin, media_type, bytes, content, created_at) "+
		"SELECT $1, 'att_' || i, 'result', 'image/png', 1, 'x', now() FROM generate_series(1, $2) i", b.id, attachment.MaxImages-1)
	batch := attachment.Batch{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", Attachments: []attachment.Attachment{picture("last"), picture("beyond")}}
	require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	_, err := b.AttachmentGet(b.ctx, b.id, picture("last").ID)
	require.NoError(t, err)
	_, err = b.AttachmentGet(b.ctx, b.id, picture("beyond").ID)
	requireCode(t, failure.NoAttachment, err)

	large := picture(strings.Repeat("x", attachment.MaxBytes-8))
	batch.Attachments = []attachment.Attachment{large}
	b.sql(t, "DELETE FROM attachments WHERE session_id = $1", b.id)
	require.NoError(t, b.AttachmentsAppend(b.ctx, batch))
	got, err := b.AttachmentGet(b.ctx, b.id, large.ID)
	require.NoError(t, err)
	require.Len(t, got.Data, attachment.MaxBytes)
}
