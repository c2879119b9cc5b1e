package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func attached(name, mediaType, data string) attachment.Attachment {
	return attachment.Attachment{
		Info: attachment.Info{ID: conversation.AttachmentID([]byte(data), name), Name: name, MediaType: mediaType, Bytes: int64(len(data))},
		Data: []byte(data),
	}
}

func TestAttachmentsAreServedSafely(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	plain := attached("", "image/png", pngBytes)
	for _, c := range []struct {
		attachment.Attachment
		disposition string
	}{
		{plain, "inline; filename=" + plain.ID + ".png"},
		{attached("shot.gif", "image/gif", gifBytes), "inline; filename=shot.gif"},
		{attached("logo.svg", "image/svg+xml", "<svg onload=alert(1)>"), "attachment; filename=logo.svg"},
		{attached("page.html", "text/html", "<script>alert(1)</script>"), "attachment; filename=page.html"},
		{attached("notes.txt", "text/plain", "notes"), "attachment; filename=notes.txt"},
		{attached("../../a b\"ü.png", "image/png", pngBytes), `inline; filename*=utf-8''a%20b%22%C3%BC.png`},
		{attached("data", "", "x"), "attachment; filename=data"},
	} {
		b.store.With(id, func(r *apitest.Row) { r.Attachments = []attachment.Attachment{c.Attachment} })
		url := "/api/sessions/" + id + "/attachments/" + c.ID
		r := b.do("GET", url, "")
		require.Equal(t, http.StatusOK, r.status, c.Name)
		require.Equal(t, c.Data, r.body)
		kind := c.MediaType
		if kind == "" {
			kind = "application/octet-stream"
		}
		require.Equal(t, kind, r.header.Get("Content-Type"))
		require.Equal(t, c.disposition, r.header.Get("Content-Disposition"))
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'; sandbox", r.header.Get("Content-Security-Policy"))
		require.Equal(t, "private, no-cache", r.header.Get("Cache-Control"))
		require.Equal(t, `"`+c.ID+`"`, r.header.Get("ETag"))
		require.Contains(t, b.do("GET", url+"?download=1", "").header.Get("Content-Disposition"), "attachment")
		require.Equal(t, http.StatusNotModified, b.do("GET", url, "", "If-None-Match", `"`+c.ID+`"`).status)
		part := b.do("GET", url, "", "Range", "bytes=0-0")
		require.Equal(t, http.StatusPartialContent, part.status)
		require.Equal(t, c.Data[:1], part.body)
	}
	url := "/api/sessions/" + id + "/attachments/"
	b.do("GET", url+plain.ID, "").problem(http.StatusNotFound, "attachment_not_found")
	b.do("GET", url+"att_1", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/attachments/"+plain.ID, "").problem(http.StatusNotFound, "session_not_found")
	b.do("POST", url+plain.ID, "").problem(http.StatusMethodNotAllowed, "method_not_allowed")
	require.Empty(t, b.temp.TakeCalls(), "reading wakes no session")
}
