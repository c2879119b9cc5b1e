package question_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/question"
)

func TestAnswersKeepTheirForm(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		answer question.Words
		empty  bool
		words  string
	}{
		`"a, b"`:       {question.Text("a, b"), false, "a, b"},
		`""`:           {question.Text(""), true, ""},
		`["a, b"]`:     {question.Options("a, b"), false, "a, b"},
		`["a","b, c"]`: {question.Options("a", "b, c"), false, "a, b, c"},
		`[]`:           {question.Options(), true, ""},
		`[""]`:         {question.Options(""), true, ""},
	} {
		got, err := json.Marshal(c.answer)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		var back question.Words
		require.NoError(t, json.Unmarshal([]byte(text), &back))
		require.Equal(t, c.answer.IsList(), back.IsList(), text)
		require.ElementsMatch(t, c.answer.Texts(), back.Texts(), text)
		require.Equal(t, c.empty, back.Empty(), text)
		require.Equal(t, c.words, back.String(), text)
	}
	for _, text := range []string{`7`, `{}`, `[1]`, `["a",null,{}]`, `[["a"]]`} {
		require.Error(t, json.Unmarshal([]byte(text), new(question.Words)), text)
	}
}
