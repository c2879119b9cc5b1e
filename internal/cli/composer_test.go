package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComposer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines   []string
		prompts []string
		rest    string // at the end of the input
	}{
		"each line is a prompt":           {[]string{"a", "b"}, []string{"a", "b"}, ""},
		"a backslash joins lines":         {[]string{`a\`, `b\`, "c", "d"}, []string{"a\nb\nc", "d"}, ""},
		"quotes join lines":               {[]string{` """ `, "a", `b\`, "", `"""`, "c"}, []string{"a\nb\\\n", "c"}, ""},
		"quotes after a backslash":        {[]string{`a\`, `"""`, "b"}, []string{"a\n\"\"\"", "b"}, ""},
		"quotes that are not closed":      {[]string{`"""`, "a", "b"}, nil, "a\nb"},
		"a backslash at the end of input": {[]string{`a\`}, nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c composer
			var prompts []string
			for _, line := range test.lines {
				prompt, complete := c.add(line)
				require.Equal(t, !complete, c.open())
				if complete {
					prompts = append(prompts, prompt)
				}
			}
			require.Equal(t, test.prompts, prompts)
			require.Equal(t, test.rest, c.end())
			require.False(t, c.open())
		})
	}
}
