package question

import (
	"encoding/json"
	"strings"
)

// Words is the answer to an Item: a text, or the chosen options. In JSON it is a string or a list of
// strings.
type Words struct {
	texts []string
	list  bool
}

// Text returns the answer of one text.
func Text(text string) Words { return Words{texts: []string{text}} }

// Options returns the answer of a list of options.
func Options(options ...string) Words { return Words{texts: options, list: true} }

// TextEach returns one text for each of several items.
func TextEach(texts map[string]string) map[string]Words {
	words := make(map[string]Words, len(texts))
	for item, text := range texts {
		words[item] = Text(text)
	}
	return words
}

// Texts returns the chosen options, or the one text.
func (s Words) Texts() []string { return s.texts }

// IsList reports whether it is a list, of any length.
func (s Words) IsList() bool { return s.list }

// Empty reports whether the answer is empty.
func (s Words) Empty() bool { return strings.Join(s.texts, "") == "" }

// String returns the answer for agents that accept only a text.
func (s Words) String() string { return strings.Join(s.texts, ", ") }

// MarshalJSON encodes a list as a list.
func (s Words) MarshalJSON() ([]byte, error) {
	if s.list {
		return json.Marshal(append([]string{}, s.texts...))
	}
	return json.Marshal(s.String())
}

// UnmarshalJSON accepts a string or a list of strings.
func (s *Words) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var options []string
		if err := json.Unmarshal(data, &options); err != nil {
			return err
		}
		*s = Options(options...)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*s = Text(text)
	return nil
}
