package question

import (
	"encoding/json"
	"strings"
)

// Said is the answer to an Item: a text, or the chosen options. In JSON it is a string or a list of
// strings.
type Said struct {
	texts []string
	list  bool
}

// Say returns the answer of one text.
func Say(text string) Said { return Said{texts: []string{text}} }

// Pick returns the answer of a list of options.
func Pick(options ...string) Said { return Said{texts: options, list: true} }

// SayEach returns one text for each of several items.
func SayEach(texts map[string]string) map[string]Said {
	said := make(map[string]Said, len(texts))
	for item, text := range texts {
		said[item] = Say(text)
	}
	return said
}

// Texts returns the chosen options, or the one text.
func (s Said) Texts() []string { return s.texts }

// IsList reports whether it is a list, of any length.
func (s Said) IsList() bool { return s.list }

// Empty reports whether the answer is empty.
func (s Said) Empty() bool { return strings.Join(s.texts, "") == "" }

// String returns the answer for agents that accept only a text.
func (s Said) String() string { return strings.Join(s.texts, ", ") }

// MarshalJSON encodes a list as a list.
func (s Said) MarshalJSON() ([]byte, error) {
	if s.list {
		return json.Marshal(append([]string{}, s.texts...))
	}
	return json.Marshal(s.String())
}

// UnmarshalJSON accepts a string or a list of strings.
func (s *Said) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var options []string
		if err := json.Unmarshal(data, &options); err != nil {
			return err
		}
		*s = Pick(options...)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*s = Say(text)
	return nil
}
