package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// TestCommandsOfREADMEExist parses every command line of this program in the README.
func TestCommandsOfREADMEExist(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(readme), "\\\n", " ") // a backslash continues the line
	lines := regexp.MustCompile(`(?m)^(?:ID=\$\()?bin/overwinter (.*)$`).FindAllStringSubmatch(text, -1)
	require.Greater(t, len(lines), 15)
	for _, line := range lines {
		words := shellWords(line[1])
		parser, err := new(commands).parser("/data", kong.Exit(func(int) {}))
		require.NoError(t, err)
		_, err = parser.Parse(words)
		require.NoError(t, err, "%q", words)
	}
}

// shellWords splits the simple commands of the README into words, with or without single quotes, up
// to a comment, a pipe or a redirection.
func shellWords(line string) []string {
	var words []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		if strings.ContainsAny(word[:1], "#|<>") {
			break
		}
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}
