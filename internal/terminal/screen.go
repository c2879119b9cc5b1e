package terminal

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// style is the appearance of a text, as parameters of SGR. The empty style is the terminal's
// default.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// span is a piece of a line in one style.
type span struct {
	style style
	text  string
}

// screen writes to the terminal: permanent lines, one line that a text streams into, and below them
// a footer that is rewritten after changes. The footer is hidden while a text is in the middle of
// its line.
//
// All text is made printable; the only terminal commands are the screen's own. flush writes the
// collected output in one piece.
//
// With ownInput the terminal does not echo: the screen shows typed text after the prompt, and the
// footer is also shown below a text that is in the middle of its line. Before more of the text is
// written, the footer is removed and the cursor returns to the end of the text, so that typed and
// streamed text never mix.
type screen struct {
	out     io.Writer
	buffer  bytes.Buffer
	rewrite bool       // footer and word wrap are possible
	color   bool       //
	width   func() int // columns; 0 if unknown

	begun  bool   // the line that a text streams into has its margin
	column int    // of the cursor in that line
	word   string // the last characters of that line that belong together
	owed   bool   // a blank at the edge waits for the next character

	footer []string // rows to be shown
	prompt string   // in front of the typed text, in the last row
	shown  []string // rows that are shown now
	asked  string   // the prompt that is shown now
	typed  int      // rows that typed text has added below the footer

	ownInput bool
	typing   string // the incomplete typed line
	echoed   string // the part of it that is shown now
	parted   bool   // the footer is shown below the line that a text streams into
}

// edge returns the last usable column if lines are wrapped. One column stays free, because
// terminals differ in the position of the cursor after the last column.
func (s *screen) edge() int {
	if !s.rewrite || s.width == nil {
		return 0
	}
	if w := s.width(); w > minWidth {
		return w - 1
	}
	return minWidth
}

// minWidth is the width of the narrowest terminal for which lines are wrapped.
const minWidth = 20

// paint writes one piece, printable, in its style.
func (s *screen) paint(st style, text string) {
	if text == "" {
		return
	}
	if !s.color || st == plain {
		s.buffer.WriteString(text)
		return
	}
	fmt.Fprintf(&s.buffer, "\x1b[%sm%s\x1b[0m", st, text)
}

// erase removes the footer, so that the next output replaces it.
func (s *screen) erase() {
	if len(s.shown) == 0 && s.asked == "" && s.typed == 0 && s.echoed == "" {
		return
	}
	s.buffer.WriteByte('\r')
	if up := len(s.shown) + s.typed; up > 0 {
		fmt.Fprintf(&s.buffer, "\x1b[%dA", up)
	}
	s.buffer.WriteString("\x1b[J")
	if s.parted {
		fmt.Fprintf(&s.buffer, "\x1b[1A\x1b[%dC", s.column)
	}
	s.shown, s.asked, s.typed, s.echoed, s.parted = nil, "", 0, "", false
}

// line ends the line that a text streams into and writes a whole one: the margin, and the spans
// after it. A line that is too long for the terminal continues below, indented.
func (s *screen) line(margin []span, spans ...span) {
	s.newline()
	s.erase()
	for _, m := range margin {
		s.paint(m.style, m.text)
		s.column += textColumns(m.text)
	}
	s.begun = true
	below := append(slices.Clone(margin), span{plain, "  "})
	for _, p := range spans {
		s.stream(p.style, below, strings.Map(onOneLine, Printable(p.text)))
	}
	s.column = max(s.column, 1) // an empty line is one too
	s.newline()
}

func onOneLine(r rune) rune {
	if r == '\n' || r == '\t' {
		return ' '
	}
	return r
}

// newline ends the line that a text streams into, if there is one.
func (s *screen) newline() {
	if s.parted {
		s.erase()
	}
	if s.column > 0 {
		s.buffer.WriteByte('\n')
	}
	s.begun, s.column, s.word, s.owed = false, 0, "", false
}

// stream writes text as it comes, breaking lines between words at the edge. Each line begins with
// the margin.
func (s *screen) stream(st style, margin []span, text string) {
	s.erase()
	edge := s.edge()
	var run strings.Builder // printable, in one line
	flush := func() {
		s.paint(st, run.String())
		run.Reset()
	}
	begin := func() {
		flush()
		for _, m := range margin {
			s.paint(m.style, m.text)
			s.column += textColumns(m.text)
		}
		s.begun = true
	}
	for _, r := range Printable(text) {
		switch r {
		case '\n':
			if !s.begun && strings.TrimSpace(marginText(margin)) != "" {
				begin() // an empty line has its margin too
			}
			flush()
			s.buffer.WriteByte('\n')
			s.begun, s.column, s.word, s.owed = false, 0, "", false
			continue
		case '\t':
			r = ' '
		}
		if edge > 0 && s.column > 0 && s.column+columns(r) > edge || s.owed {
			if r == ' ' {
				s.owed = true
				continue
			}
			word := s.word
			if s.owed || textColumns(word)+textColumns(marginText(margin)) >= s.column {
				word = "" // the word fills the whole line, so it is split here
			}
			flush()
			if word != "" {
				fmt.Fprintf(&s.buffer, "\x1b[%dD\x1b[K", textColumns(word))
			}
			s.buffer.WriteByte('\n')
			s.column, s.owed, s.word = 0, false, word
			begin()
			run.WriteString(word)
			s.column += textColumns(word)
		}
		if !s.begun {
			begin()
		}
		run.WriteRune(r)
		s.column += columns(r)
		if r == ' ' {
			s.word = ""
		} else if edge > 0 {
			s.word += string(r)
		}
	}
	flush()
}

func marginText(margin []span) string {
	var b strings.Builder
	for _, m := range margin {
		b.WriteString(m.text)
	}
	return b.String()
}

// settle shows the footer if it may be shown and is not.
func (s *screen) settle() {
	if !s.rewrite || s.column > 0 && !s.ownInput {
		return
	}
	typing := s.tail(s.typing)
	if slices.Equal(s.shown, s.footer) && s.asked == s.prompt && s.typed == 0 && s.echoed == typing {
		return
	}
	s.erase()
	if s.column > 0 && (len(s.footer) > 0 || s.prompt != "" || typing != "") {
		s.buffer.WriteByte('\n')
		s.parted = true
	}
	for _, row := range s.footer {
		s.buffer.WriteString(row)
		s.buffer.WriteByte('\n')
	}
	s.paint(bold, s.prompt)
	s.buffer.WriteString(typing)
	s.shown, s.asked, s.echoed = slices.Clone(s.footer), s.prompt, typing
}

// tail returns the end of the typed text that fits into the row of the prompt.
func (s *screen) tail(text string) string {
	text = strings.Map(onOneLine, Printable(text))
	room := s.edge() - textColumns(s.prompt)
	if s.edge() == 0 || textColumns(text) <= room {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && textColumns(string(runes))+1 > room {
		runes = runes[1:]
	}
	return "…" + string(runes)
}

// row returns a line for the footer that occupies exactly one row of the terminal.
func (s *screen) row(spans ...span) string {
	left := s.edge()
	var keep bytes.Buffer
	keep, s.buffer = s.buffer, keep
	for _, p := range spans {
		text := strings.Map(onOneLine, Printable(p.text))
		if n := textColumns(text); left > 0 && n > left {
			s.paint(p.style, fit(text, left))
			break
		} else if left > 0 {
			if left -= n; left == 0 {
				s.paint(p.style, text)
				break
			}
		}
		s.paint(p.style, text)
	}
	row := s.buffer.String()
	s.buffer = keep
	return row
}

// entered records that the user has ended a line: the terminal has shown it and moved to the
// beginning of the next row.
func (s *screen) entered(text string) {
	if !s.rewrite {
		return
	}
	if s.ownInput {
		s.typing = ""
		return
	}
	if s.column > 0 {
		s.begun, s.column, s.word, s.owed = false, 0, "", false // the text continues after the typed line
		return
	}
	s.typed++
	if edge := s.edge(); edge > 0 {
		s.typed += (textColumns(s.asked) + textColumns(Printable(text))) / (edge + 1)
	}
}

// flush writes the collected output.
func (s *screen) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	_, err := s.out.Write(s.buffer.Bytes())
	s.buffer.Reset()
	if err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}
