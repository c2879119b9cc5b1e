package terminal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Printable drops from a text what could command a terminal or hide what it says: text of agents is
// not to be trusted. Newlines and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return -1
		}
		return r
	}, text)
}

// How many characters of a text are shown where it is one of several things on a line.
const (
	LineRunes  = 160 // a reason, an input or a question
	TitleRunes = 40  // a title in a list
)

// OneLine makes a printable line of a text, cut to most runes where most is not 0.
func OneLine(text string, most int) string {
	line := strings.Join(strings.Fields(Printable(text)), " ")
	if runes := []rune(line); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return line
}

// wide are the runes that take two columns: East Asian wide ones, and pictures.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x231a, 0x231b, 1},
		{0x23e9, 0x23ec, 1},
		{0x25fd, 0x25fe, 1},
		{0x2614, 0x2615, 1},
		{0x2648, 0x2653, 1},
		{0x26aa, 0x26ab, 1},
		{0x26bd, 0x26be, 1},
		{0x26c4, 0x26c5, 1},
		{0x2705, 0x2705, 1},
		{0x270a, 0x270b, 1},
		{0x2728, 0x2728, 1},
		{0x274c, 0x274c, 1},
		{0x2753, 0x2755, 1},
		{0x2795, 0x2797, 1},
		{0x2b1b, 0x2b1c, 1},
		{0x2b50, 0x2b50, 1},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff00, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// columns is how many columns of a terminal a rune takes, near enough to break lines by.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

func textColumns(text string) int {
	n := 0
	for _, r := range text {
		n += columns(r)
	}
	return n
}

// fit cuts a line to most columns; 0 is no bound.
func fit(line string, most int) string {
	if most <= 0 || textColumns(line) <= most {
		return line
	}
	n := 0
	for i, r := range line {
		if n += columns(r); n > most-1 {
			return line[:i] + "…"
		}
	}
	return line
}

// telling are the fields of a tool's input that say what it is about, the best first.
var telling = []string{
	"command", "cmd", "file_path", "filePath", "path", "file", "pattern", "query", "url", "question", "description", "prompt",
}

// summary is the input of a tool on one line: what it is about, else all of it.
func summary(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return OneLine(plainText(input), 0)
	}
	for _, name := range telling {
		if text := words(fields[name]); text != "" {
			return OneLine(text, 0)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	for _, raw := range fields {
		var list []json.RawMessage
		if len(fields) == 1 && json.Unmarshal(raw, &list) == nil && len(list) == 1 {
			return summary(list[0])
		}
	}
	return OneLine(string(input), 0)
}

// words is a text, or the words of a command.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, " ")
	}
	return ""
}

// plainText is what a person reads of an output: the text that it is or holds, else its JSON.
func plainText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(raw, &parts) == nil && !slices.ContainsFunc(parts, func(p struct{ Type, Text string }) bool { return p.Type == "" }) {
		texts := make([]string, len(parts))
		for i, p := range parts {
			if texts[i] = p.Text; p.Text == "" {
				texts[i] = "[" + p.Type + "]"
			}
		}
		return strings.Join(texts, "\n")
	}
	var ran struct {
		Output   *string `json:"output"`
		ExitCode int     `json:"exitCode"`
	}
	if json.Unmarshal(raw, &ran) == nil && ran.Output != nil {
		text = strings.TrimRight(*ran.Output, "\n")
		if ran.ExitCode != 0 {
			text += fmt.Sprintf("\nexit code %d", ran.ExitCode)
		}
		return strings.TrimLeft(text, "\n")
	}
	return string(raw)
}

// lines splits a text, without the empty ones at both ends. Of a line that was written over with
// carriage returns, as progress bars are, the last state counts.
func lines(text string) []string {
	text = strings.Trim(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if strings.TrimSpace(text) == "" {
		return nil
	}
	out := strings.Split(text, "\n")
	for i, line := range out {
		line = strings.TrimRight(line, "\r")
		out[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return out
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
