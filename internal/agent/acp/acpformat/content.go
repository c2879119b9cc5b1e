package acpformat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Words returns the text of a content block. Content other than text becomes a label, such as its
// URI in brackets.
func Words(content json.RawMessage) string {
	words, _ := wordsOf(content)
	return words
}

// wordsOf implements Words. own reports whether the text is the content's own and not a label.
func wordsOf(content json.RawMessage) (words string, own bool) {
	var c struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		MimeType string `json:"mimeType"`
		URI      string `json:"uri"`
		Resource *struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"resource"`
	}
	if !Decode(content, &c) {
		return "", true
	}
	switch {
	case c.Type == "text" || c.Text != "":
		return c.Text, true
	case c.Resource != nil && c.Resource.Text != "":
		return c.Resource.Text, true
	case c.Resource != nil:
		return "[" + c.Resource.URI + "]", false
	case c.URI != "":
		return "[" + c.URI + "]", false
	case c.MimeType != "":
		return "[" + c.MimeType + "]", false
	}
	return "", true
}

// Shown returns the content of a tool call, a JSON list, as text.
func Shown(content json.RawMessage) string {
	words, others := shown(content)
	return strings.Join(append(words, others...), "\n")
}

// Images returns the images in the content of a tool call.
func Images(content json.RawMessage) []conversation.ImageData {
	var list []struct {
		Content struct {
			Type string `json:"type"`
			Data string `json:"data"`
		} `json:"content"`
	}
	if !bytes.Contains(content, []byte(`"image"`)) || !Decode(content, &list) {
		return nil
	}
	var out []conversation.ImageData
	for _, c := range list {
		if len(out) >= conversation.MaxBlockImages || c.Content.Type != "image" {
			continue
		}
		if i, ok := conversation.DecodeImage(c.Content.Data); ok {
			out = append(out, i)
		}
	}
	return out
}

// shown splits the content of a tool call into its text and the labels of everything else.
func shown(content json.RawMessage) (words, others []string) {
	var list []struct {
		Type     string          `json:"type"`
		Content  json.RawMessage `json:"content"`
		Terminal string          `json:"terminalId"`
		change
	}
	if len(content) == 0 || json.Unmarshal(content, &list) != nil {
		return nil, nil
	}
	for _, c := range list {
		switch c.Type {
		case "content":
			if text, own := wordsOf(c.Content); own {
				words = append(words, text)
			} else {
				others = append(others, text)
			}
		case "diff":
			others = append(others, c.String())
		case "terminal":
			others = append(others, "[terminal "+c.Terminal+"]")
		}
	}
	return words, others
}

// change is a change of a file.
type change struct {
	Path string `json:"path"`
	Old  string `json:"oldText"`
	New  string `json:"newText"`
}

// String returns the path, followed by the removed and the added lines. Common lines at the
// beginning and the end are omitted.
func (c change) String() string {
	var b strings.Builder
	b.WriteString(c.Path)
	old, now := lines(c.Old), lines(c.New)
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	for _, line := range old {
		b.WriteString("\n-" + line)
	}
	for _, line := range now {
		b.WriteString("\n+" + line)
	}
	return b.String()
}

// lines splits a text into lines. A trailing newline does not start another line.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// output returns the result of a call as the agent reports it: its text, under the names that
// agents use, with whatever else its content shows. Without a text it returns the raw value.
func output(raw, content json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return Encode(Shown(content))
	}
	var fields struct {
		Output *string `json:"output"`
		Error  *string `json:"error"`
	}
	if raw[0] != '{' || !Decode(raw, &fields) {
		return raw
	}
	result := fields.Output
	if result == nil {
		result = fields.Error
	}
	if result == nil {
		return raw
	}
	_, others := shown(content)
	return Encode(strings.Join(append([]string{*result}, others...), "\n"))
}
