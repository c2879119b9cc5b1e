package terminal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

func TestPermissionIsDecided(t *testing.T) {
	t.Parallel()
	permission := resource.QuestionJSON{Kind: question.Permission, Title: "Bash: list\x1b[2J files"}
	require.Equal(t, "Bash: list[2J files: once, session, always or reject? ", terminal.NewDialog(permission).Prompt())
	for line, want := range map[string]question.Answer{
		"once":                         {Decision: question.Once},
		" O ":                          {Decision: question.Once},
		"s":                            {Decision: question.ForSession},
		"Always":                       {Decision: question.Always},
		"r":                            {Decision: question.Reject},
		"/reject  not\x1b before tea ": {Decision: question.Reject, Message: "not before tea"},
	} {
		d := terminal.NewDialog(permission)
		done, hint := d.Line(line)
		require.Empty(t, hint, line)
		require.True(t, done, line)
		require.Equal(t, want, d.Answer(), line)
	}
	for _, line := range []string{"", "yes", "once please", "/", "o n"} {
		d := terminal.NewDialog(permission)
		done, hint := d.Line(line)
		require.False(t, done, line)
		require.Contains(t, hint, "say once, session, always, or reject", line)
	}
}

func TestQuestionsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	q := resource.QuestionJSON{Kind: question.Inquiry, Title: "Some things", Questions: []resource.QuestionItem{
		{Question: "Which colour?", Options: []resource.QuestionOption{{Label: "Red"}, {Label: "Blue"}}},
		{Question: "Which fruit?", Multiple: true, Options: []resource.QuestionOption{{Label: "Fig"}, {Label: "Pear"}, {Label: "Plum"}}},
		{Question: "Why?"},
	}}
	d := terminal.NewDialog(q)
	require.Equal(t, "1/3, Which colour?: 1-2, or your own text> ", d.Prompt())
	for _, line := range []string{"3", "0", ""} {
		done, hint := d.Line(line)
		require.False(t, done)
		require.NotEmpty(t, hint, line)
	}
	for _, line := range []string{"2", "1, 3"} {
		done, hint := d.Line(line)
		require.False(t, done)
		require.Empty(t, hint)
	}
	require.Equal(t, "3/3, Why?: your answer> ", d.Prompt())
	done, hint := d.Line("7")
	require.True(t, done, "no number means an option where there are none")
	require.Empty(t, hint)
	require.Equal(t, question.Answer{Decision: question.Once, Answers: map[string]question.Said{
		"Which colour?": question.Say("Blue"), "Which fruit?": question.Pick("Fig", "Plum"), "Why?": question.Say("7"),
	}}, d.Answer())

	d = terminal.NewDialog(q)
	_, _ = d.Line("1, 2") // own words: only one may be chosen
	done, _ = d.Line("/reject I do not care")
	require.True(t, done)
	require.Equal(t, question.Answer{Decision: question.Reject, Message: "I do not care"}, d.Answer())
}

func TestAQuestionWithoutWordsIsDecided(t *testing.T) {
	t.Parallel()
	d := terminal.NewDialog(resource.QuestionJSON{Kind: question.Inquiry, Title: "Continue?"})
	require.Contains(t, d.Prompt(), "Continue?: once")
	done, _ := d.Line("once")
	require.True(t, done)
}
