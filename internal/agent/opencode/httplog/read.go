package httplog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Response is the content of one response: a list of messages, or sessions.
type Response struct {
	Messages json.RawMessage
	Sessions []json.RawMessage
}

type line struct {
	Path     string          `json:"path"`
	Response json.RawMessage `json:"response"`
}

// Is reports whether a file is such a recording, based on its first line.
func Is(data []byte) bool {
	first, _, _ := bytes.Cut(data, []byte("\n"))
	var l line
	return json.Unmarshal(first, &l) == nil && l.Path != ""
}

// Read reads a recording. It skips responses to other requests.
func Read(data []byte) []Response {
	var out []Response
	for raw := range bytes.Lines(data) {
		var l line
		if json.Unmarshal(raw, &l) == nil {
			if r, ok := response(l); ok {
				out = append(out, r)
			}
		}
	}
	return out
}

func response(l line) (Response, bool) {
	route, ok := strings.CutPrefix(l.Path, "/session")
	if !ok || len(l.Response) == 0 {
		return Response{}, false
	}
	route, _, _ = strings.Cut(route, "?")
	isList := l.Response[0] == '['
	switch {
	case isList && strings.HasSuffix(route, "/message"):
		return Response{Messages: l.Response}, true
	case isList, strings.HasSuffix(route, "/children"):
		var r Response
		return r, json.Unmarshal(l.Response, &r.Sessions) == nil
	}
	return Response{Sessions: []json.RawMessage{l.Response}}, strings.Count(route, "/") <= 1
}
