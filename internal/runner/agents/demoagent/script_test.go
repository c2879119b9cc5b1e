package demoagent

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestReadsScriptLineByLine(t *testing.T) {
	t.Parallel()
	say := func(lines ...textLine) step { return step{verb: verbSay, lines: lines} }
	for content, want := range map[string][]step{
		"":                                {},
		"\n \n":                           {},
		"hello there":                     {say(textLine{text: "hello there"})},
		"one\ntwo":                        {say(textLine{text: "one"}, textLine{text: "two"})},
		"\none\n\ntwo\n\n":                {say(textLine{text: "one"}, textLine{text: ""}, textLine{text: "two"})},
		"one\r\ntwo\r\n":                  {say(textLine{text: "one"}, textLine{text: "two"})},
		"  indented":                      {say(textLine{text: "  indented"})},
		"slow 50ms: a b":                  {say(textLine{text: "a b", pause: 50 * time.Millisecond})},
		"slow down: a b":                  {say(textLine{text: "slow down: a b"})},
		"$ ls -l":                         {{verb: verbShell, text: "ls -l"}},
		"$5 is cheap":                     {say(textLine{text: "$5 is cheap"})},
		"one\n$ ls\ntwo":                  {say(textLine{text: "one"}), {verb: verbShell, text: "ls"}, say(textLine{text: "two"})},
		"write a/b.txt: text: more":       {{verb: verbWrite, name: "a/b.txt", text: "text: more"}},
		"write f:x":                       {{verb: verbWrite, name: "f", text: "x"}},
		"write f:":                        {{verb: verbWrite, name: "f"}},
		"write me a poem: now":            {say(textLine{text: "write me a poem: now"})},
		"look: a/shot.png":                {{verb: verbLook, name: "a/shot.png"}},
		"sleep 2s":                        {{verb: verbSleep, pause: 2 * time.Second}},
		"sleep 1m30s":                     {{verb: verbSleep, pause: 90 * time.Second}},
		"sleep well":                      {say(textLine{text: "sleep well"})},
		"sleep -1s":                       {say(textLine{text: "sleep -1s"})},
		"think: hm":                       {{verb: verbThink, text: "hm"}},
		"think about: it":                 {say(textLine{text: "think about: it"})},
		"recall":                          {{verb: verbRecall}},
		"recall that":                     {say(textLine{text: "recall that"})},
		"crash":                           {{verb: verbCrash}},
		"ask: Which colour? | Red | Blue": {{verb: verbAsk, text: "Which colour?", options: []string{"Red", "Blue"}}},
		"ask: Why?":                       {{verb: verbAsk, text: "Why?"}},
		"ask:What|| a |":                  {{verb: verbAsk, text: "What", options: []string{"a"}}},
		"ask: | Red":                      {say(textLine{text: "ask: | Red"})},
		"ask me: nothing":                 {say(textLine{text: "ask me: nothing"})},
		"fail: out of luck":               {{verb: verbFail, text: "out of luck"}},
		"title: A day":                    {{verb: verbTitle, text: "A day"}},
		"subagent bob: $ ls":              {{verb: verbSubagent, name: "bob", text: "$ ls"}},
		"subagent : $ ls":                 {say(textLine{text: "subagent : $ ls"})},
		"note: this is no command at all": {say(textLine{text: "note: this is no command at all"})},
	} {
		got := parseScript(content)
		if len(want) == 0 {
			require.Empty(t, got, "%q", content)
			continue
		}
		require.Equal(t, want, got, "%q", content)
	}
}

func TestWordsJoinToOriginalText(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"one ", "two  ", "three"}, words("one two  three"))
	require.Equal(t, []string{"  one\n", "two\n"}, words("  one\ntwo\n"))
	require.Empty(t, words(""))
	require.Equal(t, []string{strings.Repeat("x", maxWord), "x"}, words(strings.Repeat("x", maxWord+1)))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("aé漢😀 \n\t"))).Draw(t, "text")
		pieces := words(strings.Repeat(text, rapid.IntRange(1, 100).Draw(t, "times")))
		joined := strings.Join(pieces, "")
		if !strings.HasPrefix(joined, text) || strings.ToValidUTF8(joined, "!") != joined {
			t.Fatalf("%q is not %q again", joined, text)
		}
		for _, p := range pieces {
			if p == "" || len(p) > maxWord {
				t.Fatalf("a word of %d bytes", len(p))
			}
			if strings.ToValidUTF8(p, "!") != p {
				t.Fatalf("%q is cut inside a character", p)
			}
		}
	})
}
