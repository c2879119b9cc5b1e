package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// Where attachments come from.
const originResult = "result"

// AttachmentsAppend stores images in results of tools, each in its own transaction, so that the session is not locked for
// longer than one takes. What is stored already is skipped, and so is what is beyond the bounds of the session.
// eventlog.ErrFenced if a newer generation or attempt has the session, or the run or the session is over.
func (db *DB) AttachmentsAppend(ctx context.Context, b attachment.Batch) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	for _, a := range b.Attachments {
		fenced := false
		err := db.inSession(ctx, "store an image", b.SessionID, func(s *sessionTx) error {
			var err error
			if fenced, err = s.fenced(ctx, b.RunID, b.Token, b.Generation); err != nil || fenced {
				return err
			}
			return s.imagePut(ctx, a)
		})
		if err == nil && fenced {
			err = eventlog.ErrFenced
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sessionTx) imagePut(ctx context.Context, a attachment.Attachment) error {
	total, err := s.q.AttachmentsTotal(ctx, s, &dbsqlc.AttachmentsTotalParams{SessionID: s.row.ID, Origin: originResult})
	if err != nil || total.Items >= attachment.MaxImages || total.Bytes+int64(len(a.Data)) > attachment.MaxImagesBytes {
		return err
	}
	return s.q.AttachmentPut(ctx, s, &dbsqlc.AttachmentPutParams{
		SessionID: s.row.ID, ID: a.ID, Origin: originResult, Name: text(a.Name), MediaType: text(a.MediaType),
		Bytes: int64(len(a.Data)), Content: a.Data, CreatedAt: s.now,
	})
}

// AttachmentGet returns an attachment with its content; attachment_not_found when there is none.
func (db *DB) AttachmentGet(ctx context.Context, sessionID, id string) (attachment.Attachment, error) {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	row, err := db.q.AttachmentGet(ctx, db.pool, &dbsqlc.AttachmentGetParams{SessionID: sessionID, ID: id})
	if isNoRows(err) {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return attachment.Attachment{}, err
		}
		return attachment.Attachment{}, failure.Errorf(failure.NoAttachment, "there is no such attachment in the session")
	}
	return attachment.Attachment{
		Info: attachment.Info{ID: row.ID, Name: row.Name, MediaType: row.MediaType, Bytes: row.Bytes}, Data: row.Content,
	}, fault("read an attachment", err)
}
