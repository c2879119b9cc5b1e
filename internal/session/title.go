package session

import (
	"strings"
	"unicode"
)

// titleRunes bounds a title made from a prompt.
const titleRunes = 60

// TitleOf returns a title for a prompt: its first nonempty line, truncated at a word. It is empty
// if there is none.
func TitleOf(content string) string {
	for line := range strings.Lines(content) {
		words := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
		title := strings.Join(words, " ")
		if runes := []rune(title); len(runes) > titleRunes {
			cut := string(runes[:titleRunes])
			if i := strings.LastIndexByte(cut, ' '); i > 0 {
				cut = cut[:i]
			}
			title = cut + "…"
		}
		if title != "" {
			return title
		}
	}
	return ""
}
