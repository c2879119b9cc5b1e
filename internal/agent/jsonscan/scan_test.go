package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// texts are valid and invalid JSON texts. They seed the fuzzing.
var texts = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":[1,{"b":"c\n\u00e9"}],"d":null}`, `{"a":-0.5e+3,"b":true,"c":false}`,
	`{"a":"\ud83d\ude00"}`, `{"a":"` + strings.Repeat("x", 100) + `\\"}`, `{"a":"é"}`, `{"":{}}`, "\t{\r\n\"a\" : [ ] }\n",
	`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":01}`, `{"a":.5}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12"}`,
	"{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", `{"a":tru}`, `{"a":nulll}`, `{"a":1}x`, `{a:1}`, `{"a":[1,]}`, `{"a":[}`, `{"a":{"b"}}`, `{"a":-}`, `{"a":1e}`,
	`{"a":1e+}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":"\`, `{"a":"`, `{,}`, `{"a":1,,"b":2}`, `{"a":{"b":1,}}`, `{"a":{1:2}}`,
	`[]`, ` [ ] `, `[1]`, `[1,"a",[],{}]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `[1`, `[]]`, `["]`, `[-0]`, `[-01]`, `[1E9]`, `[true,false,null]`,
	`1`, `"a"`, ``, ` `, "\ufeff{}", "{\"a\":\"\xff\"}",
}

// valid returns the result that Fields or Elements, depending on the first byte, must return for
// raw.
func valid(raw []byte, first byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == first && json.Valid(raw)
}

type member struct{ key, value string }

func fields(raw []byte) (members []member, ok bool) {
	ok = Fields(raw, func(key, value []byte) { members = append(members, member{string(key), string(value)}) })
	return members, ok
}

func elements(raw []byte) (values []string, ok bool) {
	ok = Elements(raw, func(value []byte) { values = append(values, string(value)) })
	return values, ok
}

func TestFieldsAndElementsAcceptValidJSON(t *testing.T) {
	t.Parallel()
	for _, s := range texts {
		_, ok := fields([]byte(s))
		require.Equal(t, valid([]byte(s), '{'), ok, "%q", s)
		_, ok = elements([]byte(s))
		require.Equal(t, valid([]byte(s), '['), ok, "%q", s)
	}
}

func TestFieldsReturnsEachMemberAsItIsWritten(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]member{
		`{}`:                           nil,
		` {"a" : 1 , "a":"b" } `:       {{"a", `1`}, {"a", `"b"`}},
		`{"\u0061":{"b":[ 1 ]},"":[]}`: {{`\u0061`, `{"b":[ 1 ]}`}, {"", `[]`}},
		`{"a":"\\","b":"}"}`:           {{"a", `"\\"`}, {"b", `"}"`}},
	} {
		members, ok := fields([]byte(raw))
		require.True(t, ok, raw)
		require.Equal(t, want, members, raw)
	}
}

func TestElementsReturnsEachElementAsItIsWritten(t *testing.T) {
	t.Parallel()
	values, ok := elements([]byte(` [ 1 ,"a,]", [ 2 ] ,{"b":[]},null] `))
	require.True(t, ok)
	require.Equal(t, []string{`1`, `"a,]"`, `[ 2 ]`, `{"b":[]}`, `null`}, values)
}

func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth int, first, last string) []byte {
		return []byte(strings.Repeat(first, depth) + "1" + strings.Repeat(last, depth))
	}
	for _, depth := range []int{maxDepth, maxDepth + 1, 100_000} {
		_, ok := elements(nested(depth, "[", "]"))
		require.Equal(t, depth <= maxDepth, ok, depth)
		_, ok = fields(nested(depth, `{"a":`, "}"))
		require.Equal(t, depth <= maxDepth, ok, depth)
	}
	_, ok := elements([]byte(strings.Repeat("[", 100_000)))
	require.False(t, ok)
}

// The end of a string is searched for eight bytes at a time.
func TestStringsEndAtEveryOffset(t *testing.T) {
	t.Parallel()
	for before := range 20 {
		for _, inside := range []string{``, `\"`, `\\`, `\u0022`, `é`, "\x7f", "\x80", "\xff", `!`, `]`, "\x1f", "\x00", "\n", `\`, `\u002`} {
			for after := range 10 {
				text := `"` + strings.Repeat("x", before) + inside + strings.Repeat("y", after) + `"`
				want := -1
				if json.Valid([]byte(text)) {
					want = len(text)
				}
				// A later quote must not count as the end, nor an earlier byte as the start.
				require.Equal(t, want, skipString([]byte(text), 0), "%q", text)
				if want >= 0 {
					require.Equal(t, want+1, skipString([]byte("["+text+`,""]`), 1), "%q", text)
					require.Equal(t, -1, skipString([]byte(text[:len(text)-1]), 0), "%q without its end", text)
				}
			}
		}
	}
}

func TestTextReadsStringsAsJSONDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.SliceOf(rapid.OneOf(
			rapid.StringMatching(`[a-zé😀 ]|\\[nrtbf"\\/]|\\u[0-9a-fA-F]{4}|\\ud83d\\ude00|\\ud800|\\udc00`),
			rapid.SampledFrom([]string{"\xff", "\xff\xfe", "\xc3", "\xed\xa0\x80", "\xf0\x9f", "\ufffd"}),
		)).Draw(rt, "parts")
		raw := []byte(`"` + strings.Join(parts, "") + `"`)
		var want string
		require.NoError(rt, json.Unmarshal(raw, &want))
		require.Equal(rt, want, Text(raw))
		require.Equal(rt, len(raw), skipString(raw, 0))
	})
	for _, raw := range []string{`12`, `null`, `{"a":1}`, `["a"]`, ``, `"`} {
		require.Empty(t, Text([]byte(raw)), raw)
	}
}

func TestInvalidBytesAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"\"a\xffb\"":        "a\uFFFDb",
		"\"\xff\xfe\"":      "\uFFFD\uFFFD",
		"\"\xff\\n\xff\"":   "\uFFFD\n\uFFFD",
		"\"\xe2\x82 \xac\"": "\uFFFD\uFFFD \uFFFD",
	} {
		require.Equal(t, want, Text([]byte(raw)), "%q", raw)
	}
}

func TestFieldReturnsLastMemberOfName(t *testing.T) {
	t.Parallel()
	require.Equal(t, `2`, string(Field([]byte(`{"a":1,"b":0,"a":2}`), "a")))
	require.Nil(t, Field([]byte(`{"a":1}`), "b"))
	require.Nil(t, Field([]byte(`[1]`), "a"))
}

func TestWords(t *testing.T) {
	t.Parallel()
	require.True(t, Is([]byte(`"abc"`), "abc"))
	require.False(t, Is([]byte(`"abd"`), "abc"))
	require.False(t, Is([]byte(`"abc`), "abc"))
	require.False(t, Is([]byte(`[abc]`), "abc"))
	require.True(t, IsTrue([]byte(`true`)))
	require.False(t, IsTrue([]byte(`"true"`)))
}

func TestCloneSharesNoMemory(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"a":1}`)
	kept := Clone(raw)
	clear(raw)
	require.JSONEq(t, `{"a":1}`, string(kept))
	require.Nil(t, Clone([]byte(`null`)))
	require.Nil(t, Clone(nil))
}

// depth returns the nesting depth of raw.
func depth(raw []byte) (deepest int) {
	dec, now := json.NewDecoder(bytes.NewReader(raw)), 0
	for {
		token, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			deepest = max(deepest, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

func FuzzFieldsAndElements(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		members, object := fields(raw)
		values, array := elements(raw)
		within := depth(raw) <= maxDepth
		require.Equal(t, valid(raw, '{') && within, object, "%q", raw)
		require.Equal(t, valid(raw, '[') && within, array, "%q", raw)
		switch {
		case object:
			want := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal(raw, &want))
			for _, m := range members {
				key := Text([]byte(`"` + m.key + `"`))
				require.Contains(t, want, key)
				require.True(t, json.Valid([]byte(m.value)), "%q", m.value)
				requireText(t, m.value)
			}
		case array:
			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &want))
			require.Equal(t, fmt.Sprintf("%s", want), fmt.Sprintf("%s", values))
		}
	})
}

// requireText requires that Text gives the same result as encoding/json, if value is a string.
func requireText(t *testing.T, value string) {
	t.Helper()
	var want string
	if value[0] == '"' {
		require.NoError(t, json.Unmarshal([]byte(value), &want))
	}
	require.Equal(t, want, Text([]byte(value)), "%q", value)
}
