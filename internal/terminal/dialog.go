package terminal

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
)

// Dialog builds the answer to a question from typed lines.
type Dialog struct {
	question client.Question
	answer   client.Reply
	item     int // the current one
}

// NewDialog returns a dialog about a question.
func NewDialog(q client.Question) *Dialog { return &Dialog{question: q} }

// Question returns the question that is being answered.
func (d *Dialog) Question() client.Question { return d.question }

// Answer returns the answer, once Line has reported that it is complete.
func (d *Dialog) Answer() client.Reply { return d.answer }

// inWords reports whether the question asks for words instead of a decision.
func (d *Dialog) inWords() bool {
	return d.question.Kind != client.PermissionRequest && len(d.question.Questions) > 0
}

// Prompt returns the text in front of the next input line.
func (d *Dialog) Prompt() string {
	if !d.inWords() {
		return OneLine(d.question.Title, labelRunes) + ": once, session, always or reject? "
	}
	item := d.question.Questions[d.item]
	var what string
	switch {
	case len(item.Options) == 0:
		what = "your answer"
	case item.Multiple:
		what = fmt.Sprintf("1-%d, several separated by commas, or your own text", len(item.Options))
	default:
		what = fmt.Sprintf("1-%d, or your own text", len(item.Options))
	}
	if len(d.question.Questions) > 1 {
		what = fmt.Sprintf("%d/%d, %s: %s", d.item+1, len(d.question.Questions), OneLine(item.Question, labelRunes), what)
	}
	return what + "> "
}

// rejects is the beginning of a line that rejects a question in words.
const rejects = "/reject"

// Line handles one typed line. done is true when the answer is complete. A hint is the reason why a
// line was not accepted; the same prompt follows.
func (d *Dialog) Line(line string) (done bool, hint string) {
	line = strings.TrimSpace(Printable(line))
	if !d.inWords() {
		return d.decide(line)
	}
	if word, message, _ := strings.Cut(line, " "); word == rejects {
		d.answer = client.Reply{Answer: client.Reject, Message: strings.TrimSpace(message)}
		return true, ""
	}
	item := d.question.Questions[d.item]
	words, hint := choose(item, line)
	if hint != "" {
		return false, hint
	}
	if d.answer.Answers == nil {
		d.answer = client.Reply{Answer: client.Once, Answers: map[string]client.Words{}}
	}
	d.answer.Answers[item.Question] = words
	d.item++
	return d.item == len(d.question.Questions), ""
}

// decide reads the answer to a request for permission: a decision, or its first letter, and with a
// rejection the message for the agent.
func (d *Dialog) decide(line string) (bool, string) {
	word, message, _ := strings.Cut(line, " ")
	word = strings.ToLower(strings.TrimPrefix(word, "/"))
	for _, decision := range client.Decisions() {
		if word == "" || (word != string(decision) && word != string(decision)[:1]) {
			continue
		}
		message = strings.TrimSpace(message)
		if message != "" && decision != client.Reject {
			break
		}
		d.answer = client.Reply{Answer: decision, Message: message}
		return true, ""
	}
	return false, "answer once, session, always, or reject with a reason; o, s, a and r work too"
}

// choose parses the answer to one question in words: numbers of options, or text.
func choose(item client.QuestionItem, line string) (words client.Words, hint string) {
	if line == "" {
		return words, "say something, or " + rejects + " and why"
	}
	numbers := strings.Split(line, ",")
	if !item.Multiple {
		numbers = []string{line}
	}
	var labels []string
	for _, number := range numbers {
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || len(item.Options) == 0 {
			return client.TextAnswer(line), ""
		}
		if n < 1 || n > len(item.Options) {
			return words, fmt.Sprintf("there is no option %d", n)
		}
		labels = append(labels, item.Options[n-1].Label)
	}
	if item.Multiple {
		return client.OptionsAnswer(labels...), ""
	}
	return client.TextAnswer(labels[0]), ""
}
