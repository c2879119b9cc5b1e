package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sent is a file of a form.
type sent struct{ disposition, mediaType, data string }

func named(name, data string) sent {
	return sent{disposition: fmt.Sprintf(`form-data; name="file"; filename=%q`, name), data: data}
}

// submitForm sends a prompt as a form.
func (b *harness) submitForm(path, prompt string, files ...sent) answer {
	b.t.Helper()
	return b.sendForm(path, "prompt", prompt, nil, files...)
}

// sendForm sends a form with JSON in a field, and files.
func (b *harness) sendForm(path, field, value string, headers []string, files ...sent) answer {
	b.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	if value != "" {
		require.NoError(b.t, w.WriteField(field, value))
	}
	for _, f := range files {
		header := map[string][]string{"Content-Disposition": {f.disposition}}
		if f.mediaType != "" {
			header["Content-Type"] = []string{f.mediaType}
		}
		part, err := w.CreatePart(header)
		require.NoError(b.t, err)
		_, err = io.WriteString(part, f.data)
		require.NoError(b.t, err)
	}
	require.NoError(b.t, w.Close())
	return b.doRaw("POST", path, &body, append(headers, "Content-Type", w.FormDataContentType())...)
}

func encoded(t *testing.T, content, id string, files ...map[string]string) string {
	t.Helper()
	body := map[string]any{"content": content, "attachments": files}
	if id != "" {
		body["id"] = id
	}
	data, err := json.Marshal(body)
	require.NoError(t, err)
	return string(data)
}

func TestPromptHasFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/prompts"
	file := map[string]string{"name": "notes.txt", "mediaType": "text/plain; charset=utf-8", "data": base64.StdEncoding.EncodeToString([]byte("notes"))}
	picture := map[string]string{"name": "shot", "mediaType": "text/html", "data": base64.StdEncoding.EncodeToString([]byte(pngBytes))}

	first := b.do("POST", path, encoded(t, "read", "p1", file, picture))
	require.Equal(t, http.StatusAccepted, first.status, "%s", first.body)
	got := first.accepted().Prompt.Attachments
	require.Len(t, got, 2)
	require.Equal(t, resource.AttachmentJSON{ID: got[0].ID, Name: "notes.txt", MediaType: "text/plain", Bytes: 5}, got[0])
	require.Equal(t, "image/png", got[1].MediaType, "what it is follows from the bytes")

	// The same content sent as a form is the same prompt. A different file, name or order is a
	// different prompt.
	form := func(files ...sent) answer { return b.submitForm(path, `{"content":"read","id":"p1"}`, files...) }
	notes := sent{`form-data; name="file"; filename="notes.txt"`, "text/plain", "notes"}
	again := form(notes, named("shot", pngBytes))
	require.Equal(t, http.StatusOK, again.status, "%s", again.body)
	require.Equal(t, got, again.accepted().Prompt.Attachments)
	form(named("shot", pngBytes), notes).problem(http.StatusConflict, "prompt_conflict")
	form(notes, named("shot.png", pngBytes)).problem(http.StatusConflict, "prompt_conflict")
	form(notes, named("shot", pngBytes+"1")).problem(http.StatusConflict, "prompt_conflict")
	form(notes).problem(http.StatusConflict, "prompt_conflict")
	b.do("POST", path, `{"content":"read","id":"p1"}`).problem(http.StatusConflict, "prompt_conflict")

	for _, a := range got {
		served := b.do("GET", "/api/sessions/"+id+"/attachments/"+a.ID, "")
		require.Equal(t, http.StatusOK, served.status)
		require.Len(t, served.body, int(a.Bytes))
		require.Equal(t, a.MediaType, served.header.Get("Content-Type"))
	}
	var prompt resource.PromptJSON
	b.do("GET", path+"/p1", "").into(&prompt)
	require.Equal(t, got, prompt.Attachments)

	// Without a given type, the name or the bytes determine the type. A file that is not a picture
	// does not get the type of a picture.
	other := b.submitForm(path, `{"content":"x"}`, named("a.csv", "1,2"), sent{`form-data; name="x"; filename="b.png"`, "image/png", "<script>"}, named("c", "text")).accepted().Prompt.Attachments
	require.Equal(t, "text/csv; charset=utf-8", other[0].MediaType)
	require.Equal(t, "application/octet-stream", other[1].MediaType)
	require.Equal(t, "text/plain; charset=utf-8", other[2].MediaType)
	require.Nil(t, b.do("POST", path, `{"content":"none","attachments":[]}`).accepted().Prompt.Attachments)
}

func TestAttachmentsHaveBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/prompts"
	large := strings.Repeat("x", attachment.MaxBytes)
	many := make([]sent, attachment.MaxPromptFiles+1)
	for i := range many {
		many[i] = named(fmt.Sprint(i), "1")
	}
	require.Equal(t, http.StatusAccepted, b.submitForm(path, `{"content":"x"}`, named("a", large), named("b", "1")).status)
	for name, c := range map[string]struct {
		answer answer
		status int
		field  string
	}{
		"a file":           {b.submitForm(path, `{"content":"x"}`, named("ok", "1"), named("a", large+"x")), 413, "attachments[1]"},
		"all files":        {b.submitForm(path, `{"content":"x"}`, named("1", large), named("2", large), named("3", large), named("4", large), named("5", large), named("6", "1")), 413, "attachments"},
		"the number":       {b.submitForm(path, `{"content":"x"}`, many...), 400, "attachments"},
		"no prompt":        {b.submitForm(path, "", named("a", "1")), 400, "prompt"},
		"a large prompt":   {b.submitForm(path, `{"content":"`+strings.Repeat("x", 1<<20)+`"}`), 413, "prompt"},
		"large content":    {b.submitForm(path, `{"content":"`+strings.Repeat("x", session.MaxPromptBytes+1)+`"}`), 413, "content"},
		"another field":    {b.submitForm(path, `{"content":"x"}`, sent{`form-data; name="id"`, "", "p1"}), 400, "id"},
		"two prompts":      {b.submitForm(path, `{"content":"x"}`, sent{`form-data; name="prompt"`, "", "{}"}), 400, "prompt"},
		"a path":           {b.submitForm(path, `{"content":"x"}`, named("../a", "1")), 400, "attachments[0].name"},
		"no name":          {b.submitForm(path, `{"content":"x"}`, named("", "1")), 400, "attachments[0].name"},
		"a device":         {b.submitForm(path, `{"content":"x"}`, named("nul.txt", "1")), 400, "attachments[0].name"},
		"a name twice":     {b.submitForm(path, `{"content":"x"}`, named("a", "1"), named("A", "2")), 400, "attachments[1].name"},
		"an empty file":    {b.submitForm(path, `{"content":"x"}`, named("a", "")), 400, "attachments[0]"},
		"a type":           {b.submitForm(path, `{"content":"x"}`, sent{`form-data; name="f"; filename="a"`, "nothing", "1"}), 400, "attachments[0].mediaType"},
		"both":             {b.submitForm(path, `{"content":"x","attachments":[]}`, named("a", "1")), 400, "attachments"},
		"no array":         {b.do("POST", path, `{"content":"x","attachments":{}}`), 400, "attachments"},
		"no base64":        {b.do("POST", path, `{"content":"x","attachments":[{"name":"a","data":"?"}]}`), 400, "attachments[0].data"},
		"no data":          {b.do("POST", path, `{"content":"x","attachments":[{"name":"a"}]}`), 400, "attachments[0].data"},
		"an unknown field": {b.do("POST", path, `{"content":"x","attachments":[{"name":"a","data":"eA==","url":"y"}]}`), 400, "attachments[0].url"},
		"a file in base64": {b.do("POST", path, encoded(t, "x", "", map[string]string{"name": "a", "data": base64.StdEncoding.EncodeToString([]byte(large + "x"))})), 413, "attachments[0]"},
	} {
		code := "invalid_request"
		if c.status == http.StatusRequestEntityTooLarge {
			code = "too_large"
		}
		p := c.answer.problem(c.status, code)
		require.NotEmpty(t, p.Errors, name)
		require.Equal(t, c.field, p.Errors[0].Field, name)
	}
	b.doRaw("POST", path, strings.NewReader("x"), "Content-Type", "multipart/form-data").problem(http.StatusBadRequest, "invalid_request")
	b.doRaw("POST", path, strings.NewReader("x"), "Content-Type", "multipart/form-data; boundary=b").problem(http.StatusBadRequest, "invalid_request")
}

// endless is an endless body that counts the bytes read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestPromptWithOversizedContentLengthIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/prompts"
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	for kind, length := range map[string]int64{"application/json": 15<<20 + 1, "multipart/form-data; boundary=b": 52 << 20} {
		var body endless
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, io.LimitReader(&body, length))
		require.NoError(t, err)
		req.Header = b.headers.Clone()
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Expect", "100-continue") // the client sends no body before it is asked to
		req.ContentLength = length
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, "%s", data)
		require.Contains(t, string(data), fmt.Sprint(attachment.MaxPromptBytes))
		require.Less(t, int64(body.read), length/2, kind)
	}
}

func TestFirstPromptOfSessionHasFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/api/sessions"
	key := []string{"Idempotency-Key", "k1"}
	form := func(session string, headers []string, files ...sent) answer {
		return b.sendForm(path, "session", session, headers, files...)
	}
	const asked = `{"agent":"demo","prompt":{"content":"read","id":"p1"}}`
	made := form(asked, key, named("notes.txt", "notes"), named("shot", pngBytes))
	require.Equal(t, http.StatusCreated, made.status, "%s", made.body)
	id := made.session().ID
	var prompt resource.PromptJSON
	b.do("GET", path+"/"+id+"/prompts/p1", "").into(&prompt)
	require.Len(t, prompt.Attachments, 2)
	require.Equal(t, "image/png", prompt.Attachments[1].MediaType)
	for _, a := range prompt.Attachments {
		require.Len(t, b.do("GET", path+"/"+id+"/attachments/"+a.ID, "").body, int(a.Bytes))
	}
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.temp.TakeCalls())

	// A repeated request returns the same session. A request with other files is a different
	// request.
	again := form(asked, key, named("notes.txt", "notes"), named("shot", pngBytes))
	require.Equal(t, http.StatusOK, again.status, "%s", again.body)
	require.Equal(t, id, again.session().ID)
	form(asked, key, named("notes.txt", "other"), named("shot", pngBytes)).problem(http.StatusConflict, "idempotency_conflict")
	b.do("POST", path, asked, key...).problem(http.StatusConflict, "idempotency_conflict")

	// Files in base64 may also exceed the limit of other bodies.
	file := fmt.Sprintf(`{"name":"a","data":%q}`, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 2<<20))))
	inJSON := b.do("POST", path, `{"agent":"demo","prompt":{"content":"read","id":"p1","attachments":[`+file+`]}}`)
	require.Equal(t, http.StatusCreated, inJSON.status, "%s", inJSON.body)
	b.do("GET", path+"/"+inJSON.session().ID+"/prompts/p1", "").into(&prompt)
	require.Equal(t, []resource.AttachmentJSON{{ID: prompt.Attachments[0].ID, Name: "a", MediaType: "text/plain; charset=utf-8", Bytes: 2 << 20}}, prompt.Attachments)

	// A request with a refused file creates no session.
	large := strings.Repeat("x", attachment.MaxBytes)
	many := make([]sent, attachment.MaxPromptFiles+1)
	for i := range many {
		many[i] = named(fmt.Sprint(i), "1")
	}
	var before struct{ Items []struct{ ID string } }
	b.do("GET", path, "").into(&before)
	require.Len(t, before.Items, 2)
	for name, c := range map[string]struct {
		answer answer
		status int
		field  string
	}{
		"a file":          {form(asked, nil, named("ok", "1"), named("a", large+"x")), 413, "prompt.attachments[1]"},
		"all files":       {form(asked, nil, named("1", large), named("2", large), named("3", large), named("4", large), named("5", large), named("6", "1")), 413, "prompt.attachments"},
		"the number":      {form(asked, nil, many...), 400, "prompt.attachments"},
		"no session":      {form("", nil, named("a", "1")), 400, "session"},
		"no prompt":       {form(`{"agent":"demo"}`, nil, named("a", "1")), 400, "prompt"},
		"a large session": {form(`{"agent":"`+strings.Repeat("x", 1<<20)+`"}`, nil), 413, "session"},
		"another field":   {form(asked, nil, sent{`form-data; name="prompt"`, "", "{}"}), 400, "prompt"},
		"a path":          {form(asked, nil, named("../a", "1")), 400, "prompt.attachments[0].name"},
		"an empty file":   {form(asked, nil, named("a", "")), 400, "prompt.attachments[0]"},
		"both":            {form(`{"agent":"demo","prompt":{"content":"x","attachments":[]}}`, nil, named("a", "1")), 400, "prompt.attachments"},
		"no base64":       {b.do("POST", path, `{"agent":"demo","prompt":{"content":"x","attachments":[{"name":"a","data":"?"}]}}`), 400, "prompt.attachments[0].data"},
		"one wrong agent": {form(`{"agent":"nobody","prompt":{"content":"x"}}`, nil, named("a", "1")), 400, "agent"},
	} {
		code := "invalid_request"
		if c.status == http.StatusRequestEntityTooLarge {
			code = "too_large"
		}
		p := c.answer.problem(c.status, code)
		require.NotEmpty(t, p.Errors, name)
		require.Equal(t, c.field, p.Errors[0].Field, name)
	}
	after := before
	b.do("GET", path, "").into(&after)
	require.Equal(t, before, after)
}

func TestFirstPromptOfForkHasFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, bundleID := b.store.Put(session.Running), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, PromptID: "p2"}}
	})
	path, key := "/api/sessions/"+id+"/fork", []string{"Idempotency-Key", "k1"}
	form := func(fork string, headers []string, files ...sent) answer {
		return b.sendForm(path, "fork", fork, headers, files...)
	}
	const asked = `{"promptId":"p2","prompt":{"content":"read","id":"p1"}}`
	made := form(asked, key, named("notes.txt", "notes"), named("shot", pngBytes))
	require.Equal(t, http.StatusCreated, made.status, "%s", made.body)
	fork := made.session().ID
	var prompt resource.PromptJSON
	b.do("GET", "/api/sessions/"+fork+"/prompts/p1", "").into(&prompt)
	require.Len(t, prompt.Attachments, 2)
	require.Equal(t, "image/png", prompt.Attachments[1].MediaType)

	// A repeated request returns the same fork, regardless of the formatting of its JSON. A request
	// with other files is a different request.
	again := form(`{"prompt":{"id":"p1","content":"read"}, "promptId":"p2"}`, key, named("notes.txt", "notes"), named("shot", pngBytes))
	require.Equal(t, http.StatusOK, again.status, "%s", again.body)
	require.Equal(t, fork, again.session().ID)
	for n := range 8 { // for any first character of the digest of the JSON
		other, otherKey := fmt.Sprintf(`{"promptId":"p2","prompt":{"content":"read %d","id":"p1"}}`, n), []string{"Idempotency-Key", fmt.Sprint("k", n+2)}
		require.Equal(t, http.StatusCreated, form(other, otherKey, named("notes.txt", "notes")).status)
		form(other, otherKey, named("notes.txt", "other")).problem(http.StatusConflict, "idempotency_conflict")
	}

	// In base64, also beyond the limit of other bodies.
	file := fmt.Sprintf(`{"name":"a","data":%q}`, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 2<<20))))
	inJSON := b.do("POST", path, `{"promptId":"p2","prompt":{"content":"read","id":"p1","attachments":[`+file+`]}}`)
	require.Equal(t, http.StatusCreated, inJSON.status, "%s", inJSON.body)

	for name, c := range map[string]struct {
		answer answer
		status int
		field  string
	}{
		"a file":    {form(asked, nil, named("ok", "1"), named("a", strings.Repeat("x", attachment.MaxBytes+1))), 413, "prompt.attachments[1]"},
		"no fork":   {form("", nil, named("a", "1")), 400, "fork"},
		"no prompt": {form(`{"promptId":"p2"}`, nil, named("a", "1")), 400, "prompt"},
		"both":      {form(`{"promptId":"p2","prompt":{"content":"x","attachments":[]}}`, nil, named("a", "1")), 400, "prompt.attachments"},
	} {
		code := "invalid_request"
		if c.status == http.StatusRequestEntityTooLarge {
			code = "too_large"
		}
		p := c.answer.problem(c.status, code)
		require.NotEmpty(t, p.Errors, name)
		require.Equal(t, c.field, p.Errors[0].Field, name)
	}
	var page struct{ Items []struct{ ID string } }
	b.do("GET", "/api/sessions/"+id+"/forks", "").into(&page)
	require.Len(t, page.Items, 10, "a refused request creates nothing")
}
