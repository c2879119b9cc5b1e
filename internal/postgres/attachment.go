package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Origins of attachments.
const (
	originResult = "result"
	originPrompt = "prompt"
)

// attachmentsPut stores the attachments of a prompt and returns their description for its row;
// limit_reached if the session has too many. An attachment that is already stored, for this prompt
// or another, counts once.
func (s *sessionTx) attachmentsPut(ctx context.Context, attachments []attachment.Attachment) ([]byte, error) {
	if len(attachments) == 0 {
		return []byte("[]"), nil
	}
	total, err := s.q.AttachmentsTotal(ctx, s, &dbsqlc.AttachmentsTotalParams{SessionID: s.row.ID, Origin: originPrompt})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(attachments))
	for i, a := range attachments {
		ids[i] = a.ID
	}
	stored, err := s.q.AttachmentsStored(ctx, s, &dbsqlc.AttachmentsStoredParams{SessionID: s.row.ID, Ids: ids})
	if err != nil {
		return nil, err
	}
	attachments, all := slices.DeleteFunc(slices.Clone(attachments), func(a attachment.Attachment) bool {
		return slices.Contains(stored, a.ID)
	}), attachments
	for _, a := range attachments {
		total.Items++
		total.Bytes += int64(len(a.Data))
	}
	if total.Items > attachment.MaxPromptsFiles || total.Bytes > attachment.MaxPromptsBytes {
		return nil, failure.Errorf(failure.LimitReached, "the prompts of a session have at most %d attachments of %d bytes together",
			attachment.MaxPromptsFiles, attachment.MaxPromptsBytes)
	}
	for _, a := range attachments {
		err := s.q.AttachmentPut(ctx, s, &dbsqlc.AttachmentPutParams{
			SessionID: s.row.ID, ID: a.ID, Origin: originPrompt, Name: a.Name, MediaType: a.MediaType,
			Bytes: int64(len(a.Data)), Content: a.Data, CreatedAt: s.now,
		})
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(resource.Attachments(all))
}

// attachmentsOf decodes the attachments in the row of a prompt.
func attachmentsOf(row []byte) []attachment.Attachment {
	var list []resource.AttachmentJSON
	if len(row) == 0 || json.Unmarshal(row, &list) != nil {
		return nil
	}
	var out []attachment.Attachment
	for _, a := range list {
		out = append(out, attachment.Attachment{Info: attachment.Info{ID: a.ID, Name: a.Name, MediaType: a.MediaType, Bytes: a.Bytes}})
	}
	return out
}

// sameAttachments compares the ids, which are derived from all other fields.
func sameAttachments(a, b session.Prompt) bool {
	return slices.EqualFunc(a.Attachments, b.Attachments, func(x, y attachment.Attachment) bool { return x.ID == y.ID })
}

// AttachmentsAppend stores images of tool results. It uses a transaction for each, so that the
// session is not locked for longer than one image takes. Images that are already stored or exceed
// the bounds of the session are skipped. It returns eventlog.ErrFenced if a newer generation or
// attempt has the session, or if the run or the session has ended.
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

// AttachmentGet returns an attachment with its content, or attachment_not_found.
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
