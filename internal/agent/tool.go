package agent

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Viewer is an adapter that describes calls of its agent's tools. Tool is pure: the same call gives
// the same view in the stream and in the transcript.
type Viewer interface {
	Tool(name string, input json.RawMessage) conversation.Tool
}

// Tools maps the names of an agent's tools to their kinds, and to the input fields that are shown
// to people.
type Tools map[string]ToolForm

// ToolForm is a tool: its kind, and the names of the fields of its input.
type ToolForm struct {
	Kind    conversation.ToolKind
	Subject []string // subject of the title; by default the path
	Path    []string
	Line    string
	Old     string // the text that New replaces
	New     string
	Edits   string // a list of inputs with Old and New
	Patch   string
}

// anyForm is the form of an unknown tool.
var anyForm = ToolForm{
	Kind:    conversation.ToolOther,
	Path:    []string{"file_path", "filePath", "path", "abs_path"},
	Subject: []string{"title", "command", "description", "file_path", "filePath", "path", "url", "query", "pattern", "prompt"},
}

// verbs begin the titles of tools, by kind. The title of a shell call is its command.
var verbs = map[conversation.ToolKind]string{
	conversation.ToolRead: "Read ", conversation.ToolEdit: "Edit ", conversation.ToolSearch: "Search ", conversation.ToolFetch: "Fetch ",
	conversation.ToolExecute: "", conversation.ToolThink: "",
}

// View returns the description of a call.
func (t Tools) View(name string, input json.RawMessage) conversation.Tool {
	form, known := t[name]
	if !known {
		form = anyForm
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		fields = nil
	}
	v := conversation.Tool{Kind: form.Kind, Title: name}
	file := first(fields, form.Path)
	subject := first(fields, form.Subject)
	if subject == "" {
		subject = file
	}
	subject, _, _ = strings.Cut(strings.TrimSpace(subject), "\n")
	verb, hasVerb := verbs[v.Kind]
	switch {
	case subject == "":
	case textOf(fields["title"]) != "" && strings.HasPrefix(textOf(fields["title"]), subject): // the agent's own title
		v.Title = subject
	case hasVerb:
		v.Title = verb + subject
	case subject != name:
		v.Title = name + ": " + subject
	}
	v.Locations = locations(fields, file, form)
	v.Diff = diffs(fields, file, form)
	if v.Kind == conversation.ToolEdit {
		for _, d := range v.Diff {
			if file == "" && d.Path != "" {
				v.Locations = append(v.Locations, conversation.Location{Path: d.Path})
			}
		}
		if subject == "" && len(v.Locations) > 0 {
			v.Title = verb + path.Base(v.Locations[0].Path)
		}
	}
	return v
}

// first returns the first of the named fields that is a text.
func first(fields map[string]json.RawMessage, names []string) string {
	for _, name := range names {
		if s := textOf(fields[name]); s != "" {
			return s
		}
	}
	return ""
}

// textOf returns a text, or the texts in a list.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, " ")
	}
	return ""
}

// locations returns the files of a call: those in its input, and those that the Agent Client
// Protocol reports.
func locations(fields map[string]json.RawMessage, file string, form ToolForm) []conversation.Location {
	var found []conversation.Location
	if file != "" {
		l := conversation.Location{Path: file}
		if json.Unmarshal(fields[form.Line], &l.Line) != nil || l.Line < 0 {
			l.Line = 0
		}
		found = append(found, l)
	}
	var named []struct {
		Path string  `json:"path"`
		Line float64 `json:"line"`
	}
	if json.Unmarshal(fields["locations"], &named) == nil {
		for _, n := range named {
			if n.Path != "" && n.Path != file {
				found = append(found, conversation.Location{Path: n.Path, Line: int(min(max(n.Line, 0), 1<<31))})
			}
		}
	}
	return found
}

// diffs returns the changes of a call.
func diffs(fields map[string]json.RawMessage, file string, form ToolForm) []conversation.FileDiff {
	if patch := textOf(fields[form.Patch]); form.Patch != "" && patch != "" {
		return []conversation.FileDiff{{Path: file, Patch: patch}}
	}
	var changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
		Diff string `json:"diff"`
	}
	if form.Kind == conversation.ToolEdit && json.Unmarshal(fields["changes"], &changes) == nil {
		var out []conversation.FileDiff
		for _, c := range changes {
			d := conversation.FileDiff{Path: c.Path}
			switch c.Kind { // for an added or deleted file, the diff is the text
			case "add":
				d.NewText = c.Diff
			case "delete":
				d.OldText = c.Diff
			default:
				d.Patch = c.Diff
			}
			out = append(out, d)
		}
		return out
	}
	if form.New == "" {
		return nil
	}
	parts := []map[string]json.RawMessage{fields}
	if form.Edits != "" {
		parts = nil
		if json.Unmarshal(fields[form.Edits], &parts) != nil {
			return nil
		}
	}
	var out []conversation.FileDiff
	for _, part := range parts {
		d := conversation.FileDiff{Path: file, NewText: textOf(part[form.New])}
		if form.Old != "" {
			d.OldText = textOf(part[form.Old])
		}
		if d.OldText != "" || d.NewText != "" {
			out = append(out, d)
		}
	}
	return out
}
