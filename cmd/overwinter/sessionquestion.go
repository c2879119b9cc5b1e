package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionQuestionsCmd lists the questions of the agent.
type sessionQuestionsCmd struct {
	sessionArg
	Status string `enum:"open,answered,expired,cancelled,all" default:"open" placeholder:"STATUS" help:"List only questions with this status: open, answered, expired, cancelled, or all. Default ${default}."`
}

// Run prints one line for each question.
func (c *sessionQuestionsCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	status := c.Status
	if status == "all" {
		status = ""
	}
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		questions, err := api.QuestionList(ctx, id, client.QuestionStatus(status))
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, questions)
		}
		return parent.printQuestions(s.stdout, questions.Items)
	})
}

// printQuestions writes one line for each question.
func (c *sessionCmd) printQuestions(w io.Writer, questions []client.Question) error {
	ids := make([]string, len(questions))
	for i, q := range questions {
		ids[i] = q.ID
	}
	short := shortIDs(session.QuestionPrefix, ids)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "QUESTION\tSTATUS\tEXPIRES\tTOOL\tTEXT") // Flush returns the error
	for _, q := range questions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", short(q.ID), q.Status, c.when(q.ExpiresAt), terminal.OneLine(q.ToolName, terminal.TitleRunes), describeQuestion(q))
	}
	return t.Flush()
}

// describeQuestion returns the question on one line.
func describeQuestion(q client.Question) string {
	text := terminal.OneLine(q.Title, terminal.LineRunes)
	switch {
	case len(q.Questions) > 0:
		var labels []string
		for _, o := range q.Questions[0].Options {
			labels = append(labels, o.Label)
		}
		return text + inBrackets(terminal.OneLine(strings.Join(labels, " | "), terminal.LineRunes))
	case len(q.Input) > 0:
		return text + " " + terminal.OneLine(string(q.Input), terminal.LineRunes)
	}
	return text
}

// sessionAnswerCmd answers a question of the agent.
type sessionAnswerCmd struct {
	sessionArg
	Question string            `arg:"" optional:"" help:"ID of the question, or the unique beginning of one. Default: the open question, if there is only one."`
	Said     string            `arg:"" optional:"" name:"answer" help:"once, session, always or reject; or, if the agent asks one question in words, the answer: a text, or the numbers of options."`
	Answer   map[string]string `mapsep:"none" placeholder:"QUESTION=TEXT" help:"Answer to one item of the question; can be repeated."`
	Message  string            `placeholder:"TEXT" help:"Message for the agent, sent with a rejection."`
	By       string            `placeholder:"USER" help:"Name of the person who answers, shown to others. Default: none."`
}

// questionIDLike matches arguments that Validate takes for the ID of a question instead of an
// answer.
var questionIDLike = regexp.MustCompile(`^(que_.*|01[0-9a-f]{9,30})$`)

// Validate checks what kong cannot.
func (c *sessionAnswerCmd) Validate() error {
	if c.Said == "" && (decides(c.Question) || len(c.Answer) == 0 && !questionIDLike.MatchString(c.Question)) {
		c.Question, c.Said = "", c.Question // the ID was left out
	}
	switch {
	case c.Said == "" && len(c.Answer) == 0:
		return usageError{"session answer: requires once, session, always or reject, an answer in words, or --answer"}
	case len(c.Answer) > 0 && c.Said != "" && !decides(c.Said):
		return usageError{"session answer: with --answer, the decision must be once, session, always or reject"}
	}
	return nil
}

// decides reports whether a word is a decision.
func decides(word string) bool { return slices.Contains(client.Decisions(), client.Decision(word)) }

// Run answers and prints the updated question.
func (c *sessionAnswerCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		question, err := questionID(ctx, api, id, c.Question)
		if err != nil {
			return err
		}
		reply := client.Reply{Answer: client.Decision(c.Said), Answers: client.TextAnswers(c.Answer)}
		if c.Said != "" && !decides(c.Said) {
			if reply, err = inWords(ctx, api, id, question, c.Said); err != nil {
				return err
			}
		}
		reply.Message, reply.AnsweredBy = c.Message, c.By
		q, err := api.QuestionAnswer(ctx, id, question, reply)
		if err != nil {
			return err
		}
		return parent.printQuestion(s.stdout, q)
	})
}

// inWords converts a text to an answer, as session attach does with an input line.
func inWords(ctx context.Context, api *client.Client, sessionID, questionID, text string) (client.Reply, error) {
	page, err := api.QuestionList(ctx, sessionID, "")
	if err != nil {
		return client.Reply{}, err
	}
	at := slices.IndexFunc(page.Items, func(q client.Question) bool { return q.ID == questionID })
	if at < 0 {
		return client.Reply{}, fmt.Errorf("session %s has no question %s", sessionID, questionID)
	}
	q := page.Items[at]
	if len(q.Questions) > 1 {
		return client.Reply{}, fmt.Errorf("question %s has %d items; answer each with --answer 'QUESTION=TEXT'", q.ID, len(q.Questions))
	}
	dialog := terminal.NewDialog(q)
	if done, hint := dialog.Line(text); !done {
		return client.Reply{}, fmt.Errorf("invalid answer %q: %s", text, hint)
	}
	return dialog.Answer(), nil
}

func (c *sessionCmd) printQuestion(w io.Writer, q client.Question) error {
	if c.json() {
		return printJSON(w, q)
	}
	answer := string(q.Answer)
	for _, asked := range slices.Sorted(maps.Keys(q.Answers)) {
		answer += fmt.Sprintf("; %s: %s", terminal.OneLine(asked, terminal.LineRunes), terminal.OneLine(q.Answers[asked].String(), terminal.LineRunes))
	}
	_, err := fmt.Fprintf(w, "%s  %s: %s\n", q.ID, q.Status, answer)
	return err
}
