package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFieldsTakesWhatJSONTakes(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":[1,{"b":"c\n\u00e9"}],"d":null}`, `{"a":-0.5e+3,"b":true,"c":false}`,
		`{"a":"\ud83d\ude00"}`, `{"a":"` + strings.Repeat("x", 100) + `\\"}`, `{"a":"é"}`,
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":01}`, `{"a":.5}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12g4"}`,
		"{\"a\":\"\n\"}", `{"a":tru}`, `{"a":1}x`, `{a:1}`, `{"a":[1,]}`, `{"a":[}`, `{"a":{"b"}}`, `{"a":-}`, `{"a":1e}`, `[]`, `1`, ``,
	} {
		require.Equal(t, json.Valid([]byte(s)) && strings.HasPrefix(strings.TrimSpace(s), "{"), Fields([]byte(s), func(_, _ []byte) {}), "%q", s)
	}
	deep := `{"a":` + strings.Repeat("[", 100_000)
	require.False(t, Fields([]byte(deep), func(_, _ []byte) {}))
}

func TestTextReadsStringsAsJSONDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		raw := []byte(`"` + rapid.StringMatching(`([a-zé😀 ]|\\[nrtbf"\\/]|\\u[0-9a-f]{4}|\\ud83d\\ude00|\\ud800)*`).Draw(rt, "raw") + `"`)
		var want string
		require.NoError(rt, json.Unmarshal(raw, &want))
		require.Equal(rt, want, Text(raw))
		require.Equal(rt, len(raw), skipString(raw, 0))
	})
	require.Equal(t, "a\uFFFDb", Text([]byte("\"a\xffb\"")))
	require.Empty(t, Text([]byte(`12`)))
}
