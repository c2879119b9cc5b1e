package demoagent

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// verb is the action of a step.
type verb int

const (
	verbSay verb = iota
	verbThink
	verbShell
	verbWrite
	verbSleep
	verbRecall
	verbTitle
	verbFail
	verbCrash
	verbSubagent
	verbAsk
	verbLook
	verbTool
	verbNote
)

// step is one step of a script.
type step struct {
	verb  verb
	name  string // write, look: the file; subagent, tool: its name
	text  string // what to run, write, think, ask, …; subagent: its line; tool: its input
	pause time.Duration
	lines []textLine // say
	// options are the answers that ask offers.
	options []string
}

// textLine is one line of text, with a pause before every word.
type textLine struct {
	text  string
	pause time.Duration
}

// parseScript parses a prompt. Every prompt is a script: a line that is not a command is text.
func parseScript(content string) []step {
	var steps []step
	var lines []textLine
	endText := func() {
		for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1].text) == "" {
			lines = lines[:len(lines)-1]
		}
		if len(lines) > 0 {
			steps = append(steps, step{verb: verbSay, lines: lines})
		}
		lines = nil
	}
	for text := range strings.SplitSeq(content, "\n") {
		text = strings.TrimSuffix(text, "\r")
		if s, ok := parseStep(text); ok {
			endText()
			steps = append(steps, s)
			continue
		}
		line := parseSpeech(text)
		if len(lines) == 0 && strings.TrimSpace(line.text) == "" {
			continue // blank lines separate steps and are kept only within text
		}
		lines = append(lines, line)
	}
	endText()
	return steps
}

// parseStep parses a line as a command. It returns false if the line is text.
func parseStep(text string) (step, bool) {
	text = strings.TrimSpace(text)
	switch text {
	case "recall":
		return step{verb: verbRecall}, true
	case "note":
		return step{verb: verbNote}, true
	case "crash":
		return step{verb: verbCrash}, true
	}
	if command, ok := strings.CutPrefix(text, "$ "); ok {
		return step{verb: verbShell, text: strings.TrimSpace(command)}, true
	}
	if d, ok := strings.CutPrefix(text, "sleep "); ok {
		pause, err := time.ParseDuration(strings.TrimSpace(d))
		return step{verb: verbSleep, pause: pause}, err == nil && pause >= 0
	}
	head, rest, ok := strings.Cut(text, ":")
	if !ok {
		return step{}, false
	}
	rest = strings.TrimPrefix(rest, " ")
	switch word, name, _ := strings.Cut(head, " "); {
	case head == "think":
		return step{verb: verbThink, text: rest}, true
	case head == "title":
		return step{verb: verbTitle, text: rest}, true
	case head == "fail":
		return step{verb: verbFail, text: rest}, true
	case head == "look" && rest != "":
		return step{verb: verbLook, name: strings.TrimSpace(rest)}, true
	case head == "ask":
		return parseQuestion(rest)
	case word == "write" && oneWord(name):
		return step{verb: verbWrite, name: name, text: rest}, true
	case word == "subagent" && oneWord(name):
		return step{verb: verbSubagent, name: name, text: rest}, true
	case word == "tool" && oneWord(name) && json.Valid([]byte(rest)):
		return step{verb: verbTool, name: name, text: rest}, true
	}
	return step{}, false
}

// maxQuestion bounds a question with its options, in bytes, because it is kept in full while it
// waits.
const maxQuestion = 4 << 10

// parseQuestion parses QUESTION | OPTION | OPTION …; empty options are omitted.
func parseQuestion(text string) (step, bool) {
	question, offered, _ := strings.Cut(text, "|")
	s := step{verb: verbAsk, text: strings.TrimSpace(question)}
	for option := range strings.SplitSeq(offered, "|") {
		if option = strings.TrimSpace(option); option != "" {
			s.options = append(s.options, option)
		}
	}
	return s, s.text != "" && len(text) <= maxQuestion
}

func parseSpeech(text string) textLine {
	if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "slow "); ok {
		d, words, ok := strings.Cut(rest, ":")
		if pause, err := time.ParseDuration(d); ok && err == nil && pause >= 0 {
			return textLine{text: strings.TrimPrefix(words, " "), pause: pause}
		}
	}
	return textLine{text: text}
}

func oneWord(s string) bool { return s != "" && !strings.ContainsFunc(s, unicode.IsSpace) }

// maxWord bounds one delta, in bytes.
const maxWord = 1 << 10

// words splits text into words, each with the space after it.
func words(text string) []string {
	var pieces []string
	for text != "" {
		n := wordEnd(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func wordEnd(text string) int {
	inWord, after := false, false
	for i, r := range text {
		switch {
		case i+utf8.RuneLen(r) > maxWord && i > 0:
			return i
		case unicode.IsSpace(r):
			after = inWord
		case after:
			return i
		default:
			inWord = true
		}
	}
	return len(text)
}

// tokens counts words.
func tokens(text string) int64 { return int64(len(strings.Fields(text))) }
