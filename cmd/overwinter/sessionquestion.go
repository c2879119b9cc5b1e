package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionQuestionsCmd lists what the agent has asked.
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

// describeQuestion is what is asked, on one line.
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
	Decision string            `arg:"" optional:"" enum:"once,session,always,reject," default:"" help:"Decision: once, session, always or reject. Default with --answer: once."`
	Answer   map[string]string `mapsep:"none" placeholder:"QUESTION=TEXT" help:"Answer to one item of the question; can be repeated."`
	Message  string            `placeholder:"TEXT" help:"Message for the agent, sent with a rejection."`
	By       string            `placeholder:"USER" help:"Name of the person who answers, shown to others. Default: none."`
}

// Validate checks what kong cannot.
func (c *sessionAnswerCmd) Validate() error {
	if c.Decision == "" && slices.Contains(client.Decisions(), client.Decision(c.Question)) {
		c.Question, c.Decision = "", c.Question // the ID was left out
	}
	if c.Decision == "" && len(c.Answer) == 0 {
		return usageError{"say once, session, always or reject, or give --answer"}
	}
	return nil
}

// Run answers and prints the updated question.
func (c *sessionAnswerCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		which, err := questionID(ctx, api, id, c.Question)
		if err != nil {
			return err
		}
		q, err := api.QuestionAnswer(ctx, id, which, client.Reply{
			Answer: client.Decision(c.Decision), Answers: client.SayEach(c.Answer), Message: c.Message, AnsweredBy: c.By,
		})
		if err != nil {
			return err
		}
		return parent.printQuestion(s.stdout, q)
	})
}

func (c *sessionCmd) printQuestion(w io.Writer, q client.Question) error {
	if c.json() {
		return printJSON(w, q)
	}
	said := string(q.Answer)
	for _, asked := range slices.Sorted(maps.Keys(q.Answers)) {
		said += fmt.Sprintf("; %s: %s", terminal.OneLine(asked, terminal.LineRunes), terminal.OneLine(q.Answers[asked].String(), terminal.LineRunes))
	}
	_, err := fmt.Fprintf(w, "%s  %s: %s\n", q.ID, q.Status, said)
	return err
}
