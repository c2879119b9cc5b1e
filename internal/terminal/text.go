package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Printable removes characters that could control a terminal or hide parts of the text, because
// text of agents is untrusted. Newlines and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return -1
		}
		return r
	}, text)
}

// Limits for the characters of a text that shares a line with others.
const (
	LineRunes    = 160 // a reason, an input or a question
	TitleRunes   = 40  // a title in a list
	ProblemRunes = 400 // an error, whose cause comes last
)

// OneLine converts a text to one printable line, truncated to most runes unless most is 0.
func OneLine(text string, most int) string {
	line := strings.Join(strings.Fields(Printable(text)), " ")
	if runes := []rune(line); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return line
}

// widths are those of terminals without a setting for East Asian width: the variables of this
// process do not describe the terminal that shows its output.
var widths = runewidth.Condition{StrictEmojiNeutral: true}

// columns returns the number of terminal columns of a rune. Graphemes of several runes are counted
// rune by rune, because terminals differ in which of them they join; a line whose width is
// overestimated is only wrapped early.
func columns(r rune) int { return widths.RuneWidth(r) }

func textColumns(text string) int {
	n := 0
	for _, r := range text {
		n += columns(r)
	}
	return n
}

// fit truncates a line to most columns; 0 means no limit.
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

// salient are the fields that summarize a tool's input, the best first.
var salient = []string{
	"command", "cmd", "file_path", "filePath", "path", "file", "pattern", "query", "url", "question", "description", "prompt",
}

// summary returns the input of a tool on one line: its salient field, or else all of it.
func summary(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return OneLine(plainText(input), 0)
	}
	for _, name := range salient {
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
		if text := words(raw); len(fields) == 1 && text != "" {
			return OneLine(text, 0) // the name of the tool is enough
		}
	}
	return OneLine(unescaped(input), 0)
}

// unescaped returns JSON in which <, > and & are not escaped, for readable shell commands.
func unescaped(raw json.RawMessage) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	var value any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return string(raw)
	}
	if err := enc.Encode(value); err != nil {
		return string(raw)
	}
	return strings.TrimRight(out.String(), "\n")
}

// words returns a text, or the joined words of a command.
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

// plainText returns the readable form of an output: its text, or else its JSON.
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
	var fields map[string]string
	if json.Unmarshal(raw, &fields) == nil && len(fields) == 1 { // {"error": "…"}
		for _, text := range fields {
			return text
		}
	}
	return unescaped(raw)
}

// lines splits a text, without the empty ones at both ends. For a line that was overwritten with
// carriage returns, such as a progress bar, the last state is used.
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

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
