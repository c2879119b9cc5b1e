package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

const (
	// maxPromptJSON bounds a prompt in JSON, with its attachments in base64, and a session or a
	// fork with such a prompt.
	maxPromptJSON = 15 << 20
	// maxPromptForm bounds a prompt, a session or a fork that is sent as a form: its files, its
	// JSON and the separators.
	maxPromptForm = attachment.MaxPromptBytes + maxBodyBytes + maxFormHeaders
	// maxFormHeaders bounds a form without the content of its parts.
	maxFormHeaders = 256 << 10
	// jsonCopies is the number of copies of a JSON body in memory while it is read.
	jsonCopies = 5
	// largeBodies bounds the bytes of bodies over maxBodyBytes in memory; others wait.
	largeBodies = 256 << 20
	// maxMediaTypeBytes bounds the media type of an attachment.
	maxMediaTypeBytes = 127
)

// bodyMemory is the room for large bodies.
type bodyMemory struct{ room *semaphore.Weighted }

func newBodyMemory() bodyMemory { return bodyMemory{semaphore.NewWeighted(largeBodies)} }

// take waits until there is room for a body. It returns the error unavailable if that takes too
// long.
func (m bodyMemory) take(ctx context.Context, bytes int64) (release func(), err error) {
	if bytes <= jsonCopies*maxBodyBytes {
		return func() {}, nil
	}
	if err := m.room.Acquire(ctx, bytes); err != nil {
		return nil, &failure.Error{Code: failure.Unavailable, Message: "too many large requests are in progress; try again", Err: err}
	}
	return func() { m.room.Release(bytes) }, nil
}

// withFiles is a body with optional files.
type withFiles struct {
	json  *object
	raw   []byte // of json
	files []attachment.Attachment
	// release must be called when the body is no longer needed.
	release func()
}

// Fields of forms that contain the JSON of a request, and the place of the files in that JSON.
const (
	promptField  = "prompt"
	sessionField = "session"
	forkField    = "fork"
)

// readWithFiles reads a JSON object, or a form with such an object in a field and files. The caller
// must call release on the result.
func (s *Server) readWithFiles(c echo.Context, field string) (body withFiles, err error) {
	kind, params, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	isForm := err == nil && kind == echo.MIMEMultipartForm
	limit, copies := int64(maxPromptJSON), int64(jsonCopies)
	if isForm {
		limit, copies = maxPromptForm, 1
	}
	length := c.Request().ContentLength
	switch {
	case length > limit && isForm:
		return body, failure.Errorf(failure.TooLarge, "the body is larger than %d bytes: the attachments of a prompt have at most %d bytes together", limit, attachment.MaxPromptBytes)
	case length > limit:
		return body, failure.Errorf(failure.TooLarge, "the body is larger than %d bytes; send attachments as multipart/form-data, with up to %d bytes", limit, attachment.MaxPromptBytes)
	case length < 0:
		length = limit
	}
	release, err := s.bodies.take(c.Request().Context(), length*copies)
	if err != nil {
		return body, err
	}
	if isForm {
		body, err = readForm(c, params["boundary"], field)
	} else if body.raw, err = readAll(c, limit); err == nil {
		body.json, body.raw, err = parseBody(body.raw, false)
	}
	if err != nil {
		release()
		return withFiles{}, err
	}
	body.release = release
	return body, nil
}

// digest is equal for equivalent requests.
func (b withFiles) digest() string {
	all := digest(b.raw)
	if len(b.files) == 0 {
		return all
	}
	for _, f := range b.files {
		all += " " + f.ID
	}
	return digestText(all)
}

// fileField names a file in errors.
func fileField(field string, n int) string {
	path := fmt.Sprintf("attachments[%d]", n)
	if field == promptField {
		return path
	}
	return promptField + "." + path // the files belong to the first prompt of a new session
}

// readForm reads the parts of a form. A file that is too large is refused as early as possible.
func readForm(c echo.Context, boundary, field string) (body withFiles, err error) {
	if boundary == "" {
		return body, failure.Errorf(failure.Invalid, "the Content-Type of the form has no boundary")
	}
	form := multipart.NewReader(http.MaxBytesReader(c.Response(), c.Request().Body, maxPromptForm), boundary)
	room := int64(attachment.MaxPromptBytes)
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if failure.CodeOf(broken(err)) == failure.TooLarge {
				return body, broken(err)
			}
			return body, &failure.Error{Code: failure.Invalid, Message: "the body is not a form", Err: err}
		}
		_, params, err := mime.ParseMediaType(part.Header.Get(echo.HeaderContentDisposition))
		if err != nil {
			return body, failure.Errorf(failure.Invalid, "the body is not a form: a part has no valid Content-Disposition")
		}
		name, isFile := params["filename"]
		switch given := params["name"]; {
		case given == field && body.json == nil:
			data, err := io.ReadAll(io.LimitReader(part, maxBodyBytes+1))
			if err != nil {
				return body, broken(err)
			}
			if len(data) > maxBodyBytes {
				return body, tooLarge(field, "is larger than %d bytes", maxBodyBytes)
			}
			if body.json, body.raw, err = parseBody(data, false); err != nil {
				return body, err
			}
		case given == field:
			return body, invalid(field, "must not be repeated")
		case !isFile:
			return body, invalid(given, "is unknown; a form has the field %s, and files", field)
		case len(body.files) == attachment.MaxPromptFiles:
			return body, invalid(strings.TrimSuffix(fileField(field, 0), "[0]"), "has more than %d files", attachment.MaxPromptFiles)
		default:
			data, err := readFile(part, fileField(field, len(body.files)), room)
			if err != nil {
				return body, err
			}
			room -= int64(len(data))
			body.files = append(body.files, attachment.Attachment{
				Info: attachment.Info{Name: name, MediaType: part.Header.Get(echo.HeaderContentType)}, Data: data,
			})
		}
	}
	if body.json == nil {
		return body, invalid(field, "is required")
	}
	return body, nil
}

// readFile reads a file of a form.
func readFile(part io.Reader, where string, room int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(part, min(attachment.MaxBytes, room)+1))
	switch {
	case err != nil:
		return nil, broken(err)
	case len(data) > attachment.MaxBytes:
		return nil, tooLarge(where, "is larger than %d bytes", attachment.MaxBytes)
	case int64(len(data)) > room:
		name, _, _ := strings.Cut(where, "[")
		return nil, tooLarge(name, "are more than %d bytes together", attachment.MaxPromptBytes)
	}
	return data, nil
}

// tooLarge returns a 413 error that names a field.
func tooLarge(field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return &failure.Error{Code: failure.TooLarge, Message: field + " " + message, Fields: []failure.Field{{Field: field, Message: message}}}
}

// attachments reads the attachments of a prompt, from a form or from the field.
func (o *object) attachments(name string, files []attachment.Attachment) []attachment.Attachment {
	raw, given := o.take(name)
	switch {
	case given && files != nil:
		o.wrong(name, "must be the files of the form")
		return nil
	case given:
		files = o.encodedFiles(name, raw)
	}
	if len(files) > attachment.MaxPromptFiles {
		o.wrong(name, "has %d items; at most %d are allowed", len(files), attachment.MaxPromptFiles)
		return nil
	}
	seen, total := map[string]bool{}, 0
	for i := range files {
		f, field := &files[i], fmt.Sprintf("%s[%d]", name, i)
		folded := strings.ToLower(f.Name)
		switch problem := attachment.CheckName(f.Name); {
		case problem != "":
			o.wrong(field+".name", "%s", problem)
		case seen[folded]:
			o.wrong(field+".name", "is the name of another attachment")
		}
		seen[folded] = true
		total += len(f.Data)
		switch {
		case len(f.Data) == 0:
			o.wrong(field, "must not be empty")
		case len(f.Data) > attachment.MaxBytes:
			*o.large = true
			o.wrong(field, "is %d bytes long; at most %d are allowed", len(f.Data), attachment.MaxBytes)
		}
		f.MediaType = o.mediaType(field+".mediaType", *f)
		f.Bytes = int64(len(f.Data))
		f.ID = conversation.AttachmentID(f.Data, "prompt", f.Name, f.MediaType)
	}
	if total > attachment.MaxPromptBytes {
		*o.large = true
		o.wrong(name, "are %d bytes long together; at most %d are allowed", total, attachment.MaxPromptBytes)
	}
	return files
}

// encodedFiles reads attachments in base64.
func (o *object) encodedFiles(name string, raw json.RawMessage) []attachment.Attachment {
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		o.wrong(name, "must be an array")
		return nil
	}
	if len(list) > attachment.MaxPromptFiles {
		o.wrong(name, "has %d items; at most %d are allowed", len(list), attachment.MaxPromptFiles)
		return nil
	}
	var files []attachment.Attachment
	for i, item := range list {
		path := fmt.Sprintf("%s[%d]", name, i)
		fields, err := readFields(item)
		if err != nil {
			o.wrong(path, "%s", err)
			continue
		}
		inner := &object{path: o.path + path + ".", fields: fields, taken: map[string]bool{}, wrongFields: o.wrongFields, large: o.large}
		inner.required("name")
		inner.required("data")
		var f attachment.Attachment
		f.Name, _ = inner.text("name")
		f.MediaType, _ = inner.text("mediaType")
		encoded, _ := inner.text("data")
		inner.unknown()
		if f.Data, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			inner.wrong("data", "must be base64")
			continue
		}
		files = append(files, f)
	}
	return files
}

// mediaType returns the type of an attachment: the client's, except that the type of a picture
// follows from its bytes, since browsers and models display it.
func (o *object) mediaType(field string, f attachment.Attachment) string {
	if kind := http.DetectContentType(f.Data); slices.Contains(pictures, kind) {
		return kind
	}
	if f.MediaType == "" {
		return fileType(f.Name, f.Data)
	}
	kind, _, err := mime.ParseMediaType(f.MediaType)
	switch {
	case err != nil || !strings.Contains(kind, "/"):
		o.wrong(field, "must be a media type such as text/plain")
	case len(kind) > maxMediaTypeBytes:
		o.wrong(field, "is %d bytes long; at most %d are allowed", len(kind), maxMediaTypeBytes)
	case slices.Contains(pictures, kind):
		return echo.MIMEOctetStream // the declared type is that of a picture, but the file is not a picture
	}
	return kind
}
