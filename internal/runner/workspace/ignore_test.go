package workspace

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIgnoreRulesMatchGit(t *testing.T) {
	t.Parallel()
	cases := map[string]map[string]bool{
		"*.log":            {"a.log": true, "d/a.log": true, "a.logs": false},
		"/top":             {"top": true, "d/top": false},
		"d/x":              {"d/x": true, "e/d/x": false},
		"build/":           {"build/": true, "build": false, "d/build/": true},
		"*.o\n!keep.o":     {"a.o": true, "keep.o": false},
		"!keep.o\n*.o":     {"keep.o": true},
		"a/**/z":           {"a/z": true, "a/b/z": true, "a/b/c/z": true, "b/z": false},
		"**/z":             {"z": true, "a/b/z": true},
		"a/**":             {"a/x": true, "a/b/c": true, "a/": false},
		"# no\n\\#yes":     {"# no": false, "#yes": true},
		"\\!bang":          {"!bang": true},
		"sp  ":             {"sp": true},
		"sp\\ ":            {"sp ": true, "sp": false},
		"[!a].c":           {"b.c": true, "a.c": false},
		"x[":               {"x[": false},
		"?":                {"a": true, "ab": false},
		"{a,b}":            {"{a,b}": true, "a": false},
		"\\{a}":            {"{a}": true, "a": false, "\\{a}": false},
		"a\\\\{b}":         {"a\\{b}": true},
		"[{]":              {"{": true, "[{]": false},
		"foo/*":            {"foo/a": true, "foo/a/b": false},
		"*.log\r\n*.tmp\r": {"a.log": true, "a.tmp": true},
	}
	for text, paths := range cases {
		r := ignores{parseRules("", text)}
		for p, want := range paths {
			name, isDir := strings.CutSuffix(p, "/")
			require.Equal(t, want, r.ignored(name, isDir), "%q of %q", p, text)
		}
	}
	inner := ignores{parseRules("", "*.txt"), parseRules("sub", "!/a.txt")}
	require.False(t, inner.ignored("sub/a.txt", false), "the inner file takes precedence")
	require.True(t, inner.ignored("sub/deep/a.txt", false), "and it is tied to its directory")
}

func FuzzIgnore(f *testing.F) {
	f.Add("**/a/**\n!b/", "a/b/c")
	f.Add(strings.Repeat("**/", 50)+"x", strings.Repeat("a/", 50)+"b")
	f.Add(strings.Repeat("*a", 6)+"/"+strings.Repeat("**/*a/", 6)+"c", strings.Repeat("a/", 50)+"b")
	f.Add("a/*\n[", "a/b")
	f.Fuzz(func(_ *testing.T, text, path string) {
		if len(text) > 1000 || strings.Count(text, "*") > 12 {
			return
		}
		parseRules("", text).ignored(path, false)
	})
}

// needGit fails the test if git is missing. make test installs it.
func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		require.NoError(t, err, "these tests need git")
	}
}
