package terminal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

func TestPermissionIsDecided(t *testing.T) {
	t.Parallel()
	permission := client.Question{Kind: client.PermissionRequest, Title: "Bash: list\x1b[2J files"}
	require.Equal(t, "Bash: list[2J files: once, session, always or reject? ", terminal.NewDialog(permission).Prompt())
	for line, want := range map[string]client.Reply{
		"once":                         {Answer: client.Once},
		" O ":                          {Answer: client.Once},
		"s":                            {Answer: client.ForSession},
		"Always":                       {Answer: client.Always},
		"r":                            {Answer: client.Reject},
		"/reject  not\x1b before tea ": {Answer: client.Reject, Message: "not before tea"},
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
		require.Contains(t, hint, "answer once, session, always, or reject", line)
	}
}

func TestQuestionsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	q := client.Question{Kind: client.Inquiry, Title: "Some things", Questions: []client.QuestionItem{
		{Question: "Which colour?", Options: []client.QuestionOption{{Label: "Red"}, {Label: "Blue"}}},
		{Question: "Which fruit?", Multiple: true, Options: []client.QuestionOption{{Label: "Fig"}, {Label: "Pear"}, {Label: "Plum"}}},
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
	require.Equal(t, client.Reply{Answer: client.Once, Answers: map[string]client.Words{
		"Which colour?": client.TextAnswer("Blue"), "Which fruit?": client.OptionsAnswer("Fig", "Plum"), "Why?": client.TextAnswer("7"),
	}}, d.Answer())

	d = terminal.NewDialog(q)
	_, _ = d.Line("1, 2") // own words: only one may be chosen
	done, _ = d.Line("/reject I do not care")
	require.True(t, done)
	require.Equal(t, client.Reply{Answer: client.Reject, Message: "I do not care"}, d.Answer())
}

func TestQuestionWithoutWordsIsDecided(t *testing.T) {
	t.Parallel()
	d := terminal.NewDialog(client.Question{Kind: client.Inquiry, Title: "Continue?"})
	require.Contains(t, d.Prompt(), "Continue?: once")
	done, _ := d.Line("once")
	require.True(t, done)
}
