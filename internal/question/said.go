package question

import (
	"encoding/json"
	"strings"
)

// Said is the answer to an Item: a text, or the options that were chosen. In JSON it is a string or a list of strings.
type Said struct {
	texts []string
	list  bool
}

// Say is one text.
func Say(text string) Said { return Said{texts: []string{text}} }

// Pick is a list of options.
func Pick(options ...string) Said { return Said{texts: options, list: true} }

// SayEach is one text for each of several items.
func SayEach(texts map[string]string) map[string]Said {
	said := make(map[string]Said, len(texts))
	for item, text := range texts {
		said[item] = Say(text)
	}
	return said
}

// Texts are the options that were chosen, or the one text.
func (s Said) Texts() []string { return s.texts }

// IsList reports whether it is a list, of any length.
func (s Said) IsList() bool { return s.list }

// Empty reports whether nothing was said.
func (s Said) Empty() bool { return strings.Join(s.texts, "") == "" }

// String is what agents get that take a text for a list.
func (s Said) String() string { return strings.Join(s.texts, ", ") }

// MarshalJSON keeps a list a list.
func (s Said) MarshalJSON() ([]byte, error) {
	if s.list {
		return json.Marshal(append([]string{}, s.texts...))
	}
	return json.Marshal(s.String())
}

// UnmarshalJSON takes a string or a list of strings.
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
