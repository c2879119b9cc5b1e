package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// socketRequest is a request of a client over a WebSocket.
type socketRequest struct {
	Type string
	ID   string // repeated in the answer; empty if the client sent none
	// Fields has the remaining fields.
	Fields map[string]json.RawMessage
}

// socketRoutes lists the requests, each with its operation of the HTTP API.
var socketRoutes = map[string]struct {
	method string
	path   string // path after that of the session; {name} is a field of the request
	// rename maps fields to their names in the operation, if those names are already in use in the
	// request.
	rename map[string]string
	body   bool
}{
	"prompt":        {http.MethodPost, "/prompts", map[string]string{"promptId": "id"}, true},
	"answer":        {http.MethodPost, "/questions/{questionId}/answer", nil, true},
	"abort":         {http.MethodPost, "/" + string(session.CommandAbort), nil, true},
	"revert":        {http.MethodPost, "/" + string(session.CommandRevert), nil, true},
	"diff":          {http.MethodGet, "/diff", nil, false},
	"git-state":     {http.MethodGet, "/git", nil, false},
	"files-changed": {http.MethodGet, "/diff", nil, false},
	"review":        {http.MethodPost, "/review", map[string]string{"promptId": "id"}, true},
	"withdraw":      {http.MethodDelete, "/prompts/{promptId}", nil, false},
	"replace":       {http.MethodPut, "/prompts/{promptId}", nil, true},
	"promote":       {http.MethodPost, "/prompts/{promptId}/promote", nil, false},
	"clear":         {http.MethodPost, "/queue/clear", nil, false},
	"hold":          {http.MethodPost, "/hold", nil, true},
	"release":       {http.MethodPost, "/release", nil, true},
	"retry":         {http.MethodPost, "/prompts/{promptId}/" + string(session.ResolutionRetry), nil, true},
	"resolve":       {http.MethodPost, "/prompts/{promptId}/" + string(session.ResolutionResolve), nil, true},
	"dismiss":       {http.MethodPost, "/prompts/{promptId}/" + string(session.ResolutionDismiss), nil, true},
}

// socketRequestTypes lists the types of requests.
func socketRequestTypes() []string {
	return append(slices.Sorted(maps.Keys(socketRoutes)), "ping")
}

var socketRequestID = regexp.MustCompile(`^[\x21-\x7e]{1,64}$`)

// readSocketRequest reads a request strictly. With an error, it returns the fields that were read.
func readSocketRequest(data []byte) (socketRequest, error) {
	fields, err := readFields(data)
	if err != nil {
		return socketRequest{}, failure.Errorf(failure.Invalid, "the message %s", err)
	}
	r := socketRequest{Fields: fields}
	o := &object{fields: fields, taken: map[string]bool{}, wrongFields: new([]failure.Field), large: new(bool)}
	id, given := o.text("id")
	if given && !socketRequestID.MatchString(id) {
		o.wrong("id", "must be 1 to 64 visible ASCII characters")
		id = ""
	}
	r.ID = id
	o.required("type")
	kind, _ := o.text("type")
	delete(fields, "id")
	delete(fields, "type")
	if len(*o.wrongFields) > 0 {
		first := (*o.wrongFields)[0]
		return r, &failure.Error{Code: failure.Invalid, Message: first.Field + " " + first.Message, Fields: *o.wrongFields}
	}
	_, known := socketRoutes[kind]
	switch {
	case kind == "ping" && len(fields) > 0:
		return r, invalid(slices.Sorted(maps.Keys(fields))[0], "is not a field of this message")
	case known, kind == "ping":
	default:
		return r, invalid("type", "must be one of: %s", strings.Join(socketRequestTypes(), ", "))
	}
	r.Type = kind
	return r, nil
}

// answeredBy names the user of the connection, unless the request names another.
func (r socketRequest) answeredBy(user string) {
	if _, given := r.Fields["answeredBy"]; !given {
		r.Fields["answeredBy"], _ = json.Marshal(user) //nolint:errchkjson // a string
	}
}

var pathField = regexp.MustCompile(`\{(\w+)\}`)

// operation returns the request to the HTTP API that corresponds to a request over a WebSocket.
func (r socketRequest) operation(sessionID string) (method, target string, body []byte, err error) {
	route := socketRoutes[r.Type]
	fields := maps.Clone(r.Fields)
	var wrong *failure.Error
	target = "/api/sessions/" + sessionID + pathField.ReplaceAllStringFunc(route.path, func(field string) string {
		name := strings.Trim(field, "{}")
		var text string
		raw, given := fields[name]
		delete(fields, name)
		switch {
		case !given:
			wrong = invalid(name, "is required")
		case json.Unmarshal(raw, &text) != nil || text == "" || raw[0] != '"':
			wrong = invalid(name, "must be a string that is not empty")
		}
		return url.PathEscape(text)
	})
	if wrong != nil {
		return "", "", nil, wrong
	}
	if !route.body {
		if len(fields) > 0 {
			return "", "", nil, invalid(slices.Sorted(maps.Keys(fields))[0], "is not a field of this message")
		}
		return route.method, target, nil, nil
	}
	for name, inner := range route.rename {
		if value, given := fields[name]; given {
			delete(fields, name)
			fields[inner] = value
		}
	}
	if body, err = json.Marshal(fields); err != nil {
		return "", "", nil, fmt.Errorf("encode fields: %w", err)
	}
	return route.method, target, body, nil
}

// named translates the field names in an operation's error to those of the request.
func (r socketRequest) named(err error) error {
	f, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return err
	}
	out := *f
	out.Fields = slices.Clone(f.Fields)
	for name, inner := range socketRoutes[r.Type].rename {
		for i, field := range out.Fields {
			if field.Field == inner {
				out.Fields[i].Field = name
				out.Message = strings.ReplaceAll(out.Message, inner+" "+field.Message, name+" "+field.Message)
			}
		}
	}
	return &out
}
