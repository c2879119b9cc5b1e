package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// maxBodyBytes bounds every request body.
const maxBodyBytes = 1 << 20

// maxDepth bounds the nesting of free-form JSON.
const maxDepth = 32

// maxWrongFields bounds the invalid fields that one response lists.
const maxWrongFields = 20

// object strictly reads the fields of one JSON object of a request. Each field is read once by name
// and type, errors are collected, and fields that were not read are reported as unknown. Call done
// last; the values of the getters are valid only if done returns nil.
type object struct {
	path        string // prefix of the names of wrong fields
	fields      map[string]json.RawMessage
	taken       map[string]bool
	wrongFields *[]failure.Field
	large       *bool // a limit is exceeded, so the response is 413 instead of 400
}

// readBody reads the request's body as one object. If empty is true, an empty body is an object
// without fields.
func readBody(c echo.Context, empty bool) (*object, []byte, error) {
	data, err := readAll(c, maxBodyBytes)
	if err != nil {
		return nil, nil, err
	}
	return parseBody(data, empty)
}

// readAll reads the request's body. A body whose Content-Length is too large is refused before it
// is read.
func readAll(c echo.Context, limit int64) ([]byte, error) {
	if c.Request().ContentLength > limit {
		return nil, failure.Errorf(failure.TooLarge, "the body is larger than %d bytes", limit)
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, limit))
	return data, broken(err)
}

// broken classifies an error of reading a body.
func broken(err error) error {
	if err == nil {
		return nil
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return failure.Errorf(failure.TooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	}
	return &failure.Error{Code: failure.Invalid, Message: "the body ended too early", Err: err}
}

// parseBody parses a body as an object.
func parseBody(data []byte, empty bool) (o *object, raw []byte, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		if !empty {
			return nil, nil, failure.Errorf(failure.Invalid, "the body is empty; a JSON object is expected")
		}
		data = []byte(`{}`)
	}
	if !utf8.Valid(data) {
		return nil, nil, failure.Errorf(failure.Invalid, "the body is not valid UTF-8")
	}
	o = &object{taken: map[string]bool{}, wrongFields: new([]failure.Field), large: new(bool)}
	if o.fields, err = readFields(data); err != nil {
		return nil, nil, &failure.Error{Code: failure.Invalid, Message: "the body " + err.Error()}
	}
	return o, data, nil
}

// readFields splits one JSON object and refuses repeated names.
func readFields(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("must be a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		key := name.(string) // the decoder returns only strings as names
		if _, twice := fields[key]; twice {
			return nil, fmt.Errorf("has the field %q twice", key)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		fields[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has unexpected data after its JSON object")
	}
	return fields, nil
}

// wrong records an error of a field, up to maxWrongFields.
func (o *object) wrong(name, format string, args ...any) {
	if len(*o.wrongFields) == maxWrongFields {
		return
	}
	*o.wrongFields = append(*o.wrongFields, failure.Field{Field: o.path + name, Message: fmt.Sprintf(format, args...)})
}

func (o *object) take(name string) (json.RawMessage, bool) {
	o.taken[name] = true
	raw, ok := o.fields[name]
	return raw, ok
}

// required reports a missing field.
func (o *object) required(name string) {
	if _, ok := o.fields[name]; !ok {
		o.wrong(name, "is required")
	}
}

// text reads a string.
func (o *object) text(name string) (string, bool) {
	raw, ok := o.take(name)
	if !ok {
		return "", false
	}
	if len(raw) == 0 || raw[0] != '"' {
		o.wrong(name, "must be a string")
		return "", false
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		o.wrong(name, "must be a string")
		return "", false
	}
	if strings.ContainsRune(text, 0) {
		o.wrong(name, "must not contain the character U+0000")
		return "", false
	}
	return text, true
}

// short reads a string of at most max runes.
func (o *object) short(name string, max int) (string, bool) {
	text, ok := o.text(name)
	if n := utf8.RuneCountInString(text); ok && n > max {
		o.wrong(name, "is %d characters long; at most %d are allowed", n, max)
		return "", false
	}
	return text, ok
}

// content reads the content of a prompt.
func (o *object) content(name string) string {
	o.required(name)
	text, ok := o.text(name)
	if !ok {
		return ""
	}
	switch {
	case strings.TrimSpace(text) == "":
		o.wrong(name, "must not be empty")
	case len(text) > session.MaxPromptBytes:
		*o.large = true
		o.wrong(name, "is %d bytes long; at most %d are allowed", len(text), session.MaxPromptBytes)
	}
	return text
}

// promptID reads the id that the client has chosen for a prompt, or generates an id.
func (o *object) promptID() string {
	const name = "id"
	id, ok := o.text(name)
	if !ok {
		return session.NewID(session.PromptPrefix)
	}
	if !session.ValidPromptID(id) {
		o.wrong(name, "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return id
}

// oneOf reads a string that must be one of several values.
func (o *object) oneOf(name, fallback string, values ...string) string {
	text, ok := o.text(name)
	if !ok {
		return fallback
	}
	if !slices.Contains(values, text) {
		o.wrong(name, "must be one of: %s", strings.Join(values, ", "))
	}
	return text
}

// number reads an integer.
func (o *object) number(name string) (int64, bool) {
	raw, ok := o.take(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		o.wrong(name, "must be a whole number")
		return 0, false
	}
	return n, true
}

// boolean reads true or false; an absent field is false.
func (o *object) boolean(name string) bool {
	b := o.optionalBoolean(name)
	return b != nil && *b
}

// optionalBoolean is boolean for a field whose absence has a separate meaning. It returns nil if
// the field is absent.
func (o *object) optionalBoolean(name string) *bool {
	raw, ok := o.take(name)
	switch {
	case !ok:
		return nil
	case string(raw) == "true":
		return new(true)
	case string(raw) != "false":
		o.wrong(name, "must be true or false")
	}
	return new(false)
}

// idleTimeout reads a duration within the bounds of an idle timeout.
func (o *object) idleTimeout(name string) (time.Duration, bool) {
	return o.duration(name, session.MinIdleTimeout, session.MaxIdleTimeout)
}

// duration reads a duration within bounds.
func (o *object) duration(name string, least, most time.Duration) (time.Duration, bool) {
	text, ok := o.text(name)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		o.wrong(name, `must be a duration such as "90s" or "15m"`)
		return 0, false
	}
	if d < least || d > most {
		o.wrong(name, "must be from %s to %s", least, most)
		return 0, false
	}
	return d, true
}

// object reads a nested object; nil if it is absent or invalid.
func (o *object) object(name string) *object {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	if len(raw) == 0 || raw[0] != '{' {
		o.wrong(name, "must be an object")
		return nil
	}
	fields, err := readFields(raw)
	if err != nil {
		o.wrong(name, "%s", err)
		return nil
	}
	return &object{path: o.path + name + ".", fields: fields, taken: map[string]bool{}, wrongFields: o.wrongFields, large: o.large}
}

// metadata reads a free-form JSON object and returns it in compact form.
func (o *object) metadata(name string) (json.RawMessage, bool) {
	raw, ok := o.take(name)
	if !ok {
		return nil, false
	}
	if len(raw) == 0 || raw[0] != '{' {
		o.wrong(name, "must be an object")
		return nil, false
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		o.wrong(name, "is not JSON")
		return nil, false
	}
	if compact.Len() > session.MaxMetadataBytes {
		o.wrong(name, "is %d bytes long; at most %d are allowed", compact.Len(), session.MaxMetadataBytes)
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(compact.Bytes()))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		o.wrong(name, "is not JSON")
		return nil, false
	}
	if wrong := storable(value, 1); wrong != "" {
		o.wrong(name, "%s", wrong)
		return nil, false
	}
	return compact.Bytes(), true
}

// storable returns the reason why the database cannot store a JSON value, or "".
func storable(value any, depth int) string {
	if depth > maxDepth {
		return fmt.Sprintf("is nested deeper than %d", maxDepth)
	}
	switch v := value.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "must not contain the character U+0000"
		}
	case json.Number:
		if f, err := strconv.ParseFloat(v.String(), 64); err != nil || math.IsInf(f, 0) {
			return "has a number that is too large"
		}
	case []any:
		for _, item := range v {
			if wrong := storable(item, depth+1); wrong != "" {
				return wrong
			}
		}
	case map[string]any:
		for key, item := range v {
			if wrong := storable(key, depth); wrong != "" {
				return wrong
			}
			if wrong := storable(item, depth+1); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// options reads the options of a session.
func (o *object) options(name string) (session.Options, bool) {
	inner := o.object(name)
	if inner == nil {
		return session.Options{}, false
	}
	model, _ := inner.short("model", profile.MaxModelRunes)
	policy := inner.oneOf("permissions", "", string(permission.Allow), string(permission.Ask), string(permission.Deny))
	timeout, _ := inner.duration("questionTimeout", question.MinTimeout, question.MaxTimeout)
	var saves checkpoint.Policy
	if text, ok := inner.text("checkpoint"); ok && text != "" {
		var err error
		if saves, err = checkpoint.Parse(text); err != nil {
			inner.wrong("checkpoint", "%s", err)
		}
	}
	inner.unknown()
	return session.Options{
		Model: model, Permissions: permission.Policy(policy), QuestionTimeout: session.Duration(timeout), Checkpoint: saves,
	}, true
}

// unknown reports every field that was not read.
func (o *object) unknown() {
	names := make([]string, 0, len(o.fields))
	for name := range o.fields {
		if !o.taken[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		o.wrong(name, "is not a field of this request")
	}
}

// done returns an error that lists all invalid fields, or nil.
func (o *object) done() error {
	o.unknown()
	wrong := *o.wrongFields
	if len(wrong) == 0 {
		return nil
	}
	code := failure.Invalid
	if *o.large && len(wrong) == 1 {
		code = failure.TooLarge
	}
	message := wrong[0].Field + " " + wrong[0].Message
	if more := len(wrong) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &failure.Error{Code: code, Message: message, Fields: wrong}
}
