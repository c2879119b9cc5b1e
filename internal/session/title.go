package session

import (
	"strings"
	"unicode"
)

// titleRunes is how much of a prompt makes a title.
const titleRunes = 60

// TitleOf makes a title of a prompt: its first line that has any words, cut at a word. It is empty
// where there are none.
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
