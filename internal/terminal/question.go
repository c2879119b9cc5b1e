package terminal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// question shows a question of an agent.
func (v *View) question(q resource.QuestionJSON) {
	v.gap(nil)
	title := v.shorten(q.Title)
	if len(q.Questions) == 1 && title == OneLine(q.Questions[0].Question, lineRunes) {
		title = ""
	}
	if title != "" {
		v.asks(title)
	}
	if q.Kind == question.Permission {
		if about := summary(q.Input); about != "" && !strings.Contains(title, about) {
			v.line(nil, span{plain, "  " + q.ToolName + "  " + v.shorten(about)})
		}
	}
	for _, item := range q.Questions {
		if title == "" {
			v.asks(v.shorten(item.Question))
		} else {
			v.line(nil, span{bold, "  " + v.shorten(item.Question)})
		}
		for i, o := range item.Options {
			text := span{dim, ""}
			if o.Description != "" {
				text.text = "  " + v.shorten(o.Description)
			}
			v.line(nil, span{plain, fmt.Sprintf("  %d. %s", i+1, OneLine(o.Label, lineRunes))}, text)
		}
	}
	text := "  " + OneLine(q.ID, lineRunes)
	if wait := time.Time(q.ExpiresAt).Sub(time.Time(q.CreatedAt)); wait > 0 {
		text += ", waits for " + wait.Round(time.Second).String()
	}
	v.line(nil, span{dim, text})
}

func (v *View) asks(text string) {
	v.line(nil, span{yellow, v.sign("the agent asks: ", "? ")}, span{bold, text})
}

// resolved shows how a question ended.
func (v *View) resolved(d event.QuestionResolvedData) {
	text := "answered: " + v.shorten(string(d.Answer))
	if len(d.Answers) > 0 {
		var all []string
		for _, asked := range slices.Sorted(maps.Keys(d.Answers)) {
			all = append(all, v.shorten(asked)+" "+v.shorten(d.Answers[asked].String()))
		}
		text = "answered: " + strings.Join(all, "; ")
	}
	if d.Message != "" {
		text += ": " + v.shorten(d.Message)
	}
	if d.Reason != "" {
		text = "not answered: " + v.shorten(d.Reason)
	}
	v.line(nil, span{dim, v.sign("", "  ") + text})
}
